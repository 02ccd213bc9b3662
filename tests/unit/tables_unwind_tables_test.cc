// SPDX-License-Identifier: Apache-2.0
//
// Tests the collector's unwind tables, on the real kernel, for files that this process maps.
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/need_bpf.h"
#include "tests/unit/support/child.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/simulated_books.h"
#include "tests/unit/unwind_image.h"
#include "userspace/base/clock.h"
#include "userspace/bpf/identify.h"
#include "userspace/bpf/kernel_books.h"
#include "userspace/process/maps.h"
#include "userspace/symbolize/debug_files.h"
#include "userspace/tables/raw_stacks.h"
#include "userspace/tables/unwind_tables.h"

namespace heaptap::recording {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using unwind::EhFrame;
using unwind::kCode;

constexpr uint64_t kNode = 4096;

// A file mapped by this process, of one page that lies at its code.
class MappedImage {
 public:
  explicit MappedImage(const std::string& bytes) : file_(elf::FileWith(elf::Padded(bytes, 0x3000))) {
    address_ = mmap(nullptr, kSize, PROT_READ | PROT_EXEC, MAP_PRIVATE, file_.get(), kOffset);
    EXPECT_NE(address_, MAP_FAILED);
    const absl::StatusOr<std::vector<elf::Mapping>> mappings = process::ReadExecutableMappings(getpid());
    for (const elf::Mapping& one : *mappings) {
      if (one.start == reinterpret_cast<uint64_t>(address_)) mapping = one;
    }
  }
  ~MappedImage() { munmap(address_, kSize); }
  MappedImage(const MappedImage&) = delete;
  MappedImage& operator=(const MappedImage&) = delete;

  int fd() const { return file_.get(); }
  // Where a link-time address of the code lies in this process.
  uint64_t At(uint64_t address) const { return mapping.start + address - kCode; }

  elf::Mapping mapping;

 private:
  static constexpr uint64_t kOffset = 0x1000;
  static constexpr uint64_t kSize = 0x1000;

  base::FileDescriptor file_;
  void* address_;
};

// Functions of two bytes each, whose CFA is `words`, or one more, above RSP.
std::string Image(uint64_t functions, uint64_t words) {
  EhFrame frames;
  const uint64_t cie = frames.AddCie();
  for (uint64_t i = 0; i < functions; i++) {
    frames.AddFde(cie, kCode + 2 * i, 2, unwind::DefCfaOffset(8 * (words + i % 2)));
  }
  return unwind::ImageWith(frames).Bytes();
}

// One node.
std::string Small(uint64_t words) { return Image(1, words); }

uint32_t Words(int words) { return heaptap_unwind_rule(HEAPTAP_CFA_RSP, words, 0, 0, 0); }

class UnwindTablesTest : public ::testing::Test {
 protected:
  absl::Status Load(uint64_t nodes = 100, uint32_t files = 100) {
    bpf::MapSizes sizes;
    sizes.files = files;
    sizes.unwind_bytes = nodes * kNode;
    absl::StatusOr<std::unique_ptr<bpf::Books>> books = bpf::KernelBooks::Load(sizes);
    if (!books.ok()) return books.status();
    books_ = *std::move(books);
    looks_.emplace(identify(), base::SubordinateIds(), worker::HandsBounds{.patience = absl::Minutes(1)});
    tables_ = std::make_unique<UnwindTables>(Means(), sizes.unwind_bytes);
    return absl::OkStatus();
  }
  UnwindTables::Means Means() { return MeansWith(errands_); }
  UnwindTables::Means MeansWith(worker::Errands& errands) {
    return {.maps = maps(), .identify = identify(), .looks = *looks_, .orders = *looks_, .errands = errands};
  }
  int identify() const { return books_->program(bpf::Program::kIdentify); }
  void Settle() {
    WaitUntil(errands_, [this] { return !tables_->IsReading(); });
  }
  void WaitUntil(worker::Errands& errands, const std::function<bool()>& is_over) {
    const base::Instant end = base::Now() + absl::Minutes(1);
    // What a look has found is then read.
    EXPECT_TRUE(looks_->WaitUntil([this] { return looks_->IsIdle(); }, end));
    EXPECT_TRUE(errands.WaitUntil(is_over, end));
    while (tables_->kernel().IsLoading()) tables_->kernel().LoadSome();
  }

  bpf::UnwindMaps& maps() { return books_->unwind(); }

  heaptap_file_key KeyOf(const MappedImage& image) {
    const absl::StatusOr<heaptap_identify> found = bpf::Identify(identify(), image.fd());
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? found->file : heaptap_file_key{};
  }
  // The messages printed meanwhile.
  std::string Enter(const MappedImage& image) { return Enter(KeyOf(image), image); }
  std::string Enter(const heaptap_file_key& key, const MappedImage& image) {
    testing::internal::CaptureStderr();
    tables_->Enter(key, getpid(), image.mapping);
    Settle();
    return testing::internal::GetCapturedStderr();
  }
  // enum heaptap_file_state; -1 if the kernel does not know it.
  int StateOf(const MappedImage& image) {
    const std::optional<heaptap_file> file = maps().ReadFile(KeyOf(image));
    return file.has_value() ? static_cast<int>(file->state) : -1;
  }
  uint32_t TableOf(const MappedImage& image) {
    const std::optional<heaptap_file> file = maps().ReadFile(KeyOf(image));
    return file.has_value() ? file->table : 0;
  }
  // Another collector takes the maps over.
  void Restart(uint64_t nodes = 100) { tables_ = std::make_unique<UnwindTables>(Means(), nodes * kNode); }
  uint32_t FindRule(const MappedImage& image, uint64_t address) {
    return tables_->FindRule(image.mapping, image.At(address));
  }
  // Marks a table as used, as a program does that looks for a row: long ago, or from now on.
  void SetLastUsed(const MappedImage& image, bool is_recent) {
    std::optional<heaptap_file> file = maps().ReadFile(KeyOf(image));
    ASSERT_TRUE(file.has_value());
    file->last_used = is_recent ? (base::Now() + absl::Hours(1)).nanoseconds() : 1;
    EXPECT_TRUE(maps().SetFile(KeyOf(image), *file).ok());
  }

  std::unique_ptr<bpf::Books> books_;
  std::optional<worker::Looks> looks_;
  worker::Errands errands_{worker::Urgency::kForeground};
  std::unique_ptr<UnwindTables> tables_;
};

size_t Lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST_F(UnwindTablesTest, FileThatWasRewrittenIsReadAgain) {
  NEED_BPF(Load());
  MappedImage image(Small(2));
  Enter(image);
  EXPECT_EQ(FindRule(image, kCode), Words(2));
  const std::string other = Image(600, 3);
  ASSERT_EQ(pwrite(image.fd(), other.data(), other.size(), 0), static_cast<ssize_t>(other.size()));
  Enter(image);
  EXPECT_EQ(FindRule(image, kCode), Words(3));
  EXPECT_EQ(StateOf(image), HEAPTAP_FILE_LOADED);
  // The old one is gone.
  EXPECT_EQ(tables_->kernel().bytes(), KernelBytes(601));
}

TEST_F(UnwindTablesTest, KnowsBuildIds) {
  NEED_BPF(Load());
  const base::FileDescriptor program(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  const absl::StatusOr<elf::File> file = elf::File::Open(program.get());
  const absl::StatusOr<heaptap_identify> found = bpf::Identify(identify(), program.get());
  ASSERT_TRUE(file.ok() && found.ok());
  const std::string build_id = symbolize::ReadBuildId(*file);
  ASSERT_THAT(build_id, Not(IsEmpty()));
  EXPECT_EQ(tables_->BuildId(found->file), "") << "not entered";
  const absl::StatusOr<std::vector<elf::Mapping>> mappings = process::ReadExecutableMappings(getpid());
  const auto own = std::find_if(mappings->begin(), mappings->end(),
                                [&](const elf::Mapping& one) { return one.inode == found->file.inode; });
  ASSERT_NE(own, mappings->end());
  tables_->Enter(found->file, getpid(), *own);
  EXPECT_EQ(tables_->BuildId(found->file), std::nullopt) << "it is being read";
  EXPECT_EQ(tables_->BuildIdOf(*own), "");
  Settle();
  EXPECT_EQ(tables_->BuildId(found->file), build_id);
  EXPECT_EQ(tables_->BuildIdOf(*own), build_id);
  tables_->Enter(found->file, getpid(), *own);
  EXPECT_EQ(tables_->BuildId(found->file), std::nullopt) << "perhaps it was rewritten";
  Settle();
  EXPECT_EQ(tables_->BuildId(found->file), build_id);
  MappedImage without(Small(2));
  Enter(without);
  EXPECT_EQ(tables_->BuildId(KeyOf(without)), "");
}

TEST_F(UnwindTablesTest, EntersAMappedFile) {
  NEED_BPF(Load());
  MappedImage image(Image(600, 2));
  EXPECT_EQ(StateOf(image), -1);
  EXPECT_THAT(Enter(image), IsEmpty());
  const std::optional<heaptap_file> file = maps().ReadFile(KeyOf(image));
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->state, HEAPTAP_FILE_LOADED);
  EXPECT_EQ(file->levels, 2);
  EXPECT_EQ(file->base, 0x1000);
  EXPECT_EQ(tables_->kernel().bytes(), 3 * kNode);
  EXPECT_EQ(tables_->kernel().bytes(), KernelBytes(601));
  EXPECT_EQ(FindRule(image, kCode), Words(2));
  EXPECT_EQ(FindRule(image, kCode + 2), Words(3));
  EXPECT_EQ(FindRule(image, kCode + 1200), 0);
  // Again: nothing changes.
  EXPECT_THAT(Enter(image), IsEmpty());
  EXPECT_EQ(tables_->kernel().bytes(), 3 * kNode);
  EXPECT_EQ(maps().ReadFile(KeyOf(image))->table, file->table);
}

TEST_F(UnwindTablesTest, RawStacksAreTakenWhileATableIsRead) {
  NEED_BPF(Load());
  MappedImage image(Small(2));
  tables_->Enter(KeyOf(image), getpid(), image.mapping);
  EXPECT_TRUE(tables_->IsBeingRead(image.mapping));
  EXPECT_EQ(StateOf(image), HEAPTAP_FILE_WANTED);
  EXPECT_EQ(FindRule(image, kCode), 0);
  // The kernel asks again: nothing changes.
  tables_->Enter(KeyOf(image), getpid(), image.mapping);
  EXPECT_EQ(StateOf(image), HEAPTAP_FILE_WANTED);
  Settle();
  EXPECT_FALSE(tables_->IsBeingRead(image.mapping));
  EXPECT_EQ(tables_->tables_read(), 2u) << "the file was looked at, and its table was read";
  EXPECT_EQ(StateOf(image), HEAPTAP_FILE_LOADED);
  EXPECT_EQ(FindRule(image, kCode), Words(2));
}

TEST_F(UnwindTablesTest, EntersThisProgramAndTheVdso) {
  NEED_BPF(Load(10000));
  testing::internal::CaptureStderr();
  tables_->EnterVdso();
  const heaptap_file_key vdso = {HEAPTAP_VDSO_INODE, 0, 0};
  ASSERT_TRUE(maps().ReadFile(vdso).has_value());
  EXPECT_EQ(maps().ReadFile(vdso)->state, HEAPTAP_FILE_LOADED);
  const absl::StatusOr<std::vector<elf::Mapping>> mappings = process::ReadExecutableMappings(getpid());
  ASSERT_TRUE(mappings.ok());
  for (const elf::Mapping& mapping : *mappings) {
    absl::StatusOr<process::MappedFile> file = process::OpenMapped(getpid(), mapping);
    if (!file.ok()) continue;
    const absl::StatusOr<heaptap_identify> found = bpf::Identify(identify(), file->file.get());
    ASSERT_TRUE(found.ok()) << mapping.path;
    tables_->Enter(found->file, getpid(), mapping);
    Settle();
    EXPECT_EQ(maps().ReadFile(found->file)->state, HEAPTAP_FILE_LOADED) << mapping.path;
    const auto address = reinterpret_cast<uint64_t>(&Image);
    if (mapping.start <= address && address < mapping.end) {
      EXPECT_NE(tables_->FindRule(mapping, address), 0);
    }
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), IsEmpty());
}

TEST_F(UnwindTablesTest, EqualTablesAreOne) {
  NEED_BPF(Load());
  MappedImage first(Small(2));
  MappedImage second(Small(2));
  MappedImage other(Small(3));
  Enter(first);
  EXPECT_EQ(tables_->kernel().bytes(), kNode);
  Enter(second);
  EXPECT_EQ(tables_->kernel().bytes(), kNode);
  EXPECT_EQ(maps().ReadFile(KeyOf(first))->table, maps().ReadFile(KeyOf(second))->table);
  Enter(other);
  EXPECT_EQ(tables_->kernel().bytes(), 2 * kNode);
  EXPECT_NE(maps().ReadFile(KeyOf(first))->table, maps().ReadFile(KeyOf(other))->table);
  EXPECT_EQ(FindRule(second, kCode), Words(2));
  EXPECT_EQ(FindRule(other, kCode), Words(3));
}

TEST_F(UnwindTablesTest, OnlyUnusedTablesMakeRoom) {
  NEED_BPF(Load(2));
  MappedImage first(Small(2));
  MappedImage second(Small(3));
  MappedImage third(Small(4));
  Enter(first);
  Enter(second);
  SetLastUsed(first, true);
  SetLastUsed(second, true);
  EXPECT_THAT(Enter(third), IsEmpty());
  EXPECT_EQ(StateOf(first), HEAPTAP_FILE_LOADED);
  EXPECT_EQ(StateOf(second), HEAPTAP_FILE_LOADED);
  EXPECT_EQ(StateOf(third), HEAPTAP_FILE_OUTSIDE);
  EXPECT_EQ(FindRule(third, kCode), Words(4));  // stacks are finished here

  // Its stacks begin to arrive, and another table's stop.
  SetLastUsed(third, true);
  tables_->kernel().Balance(base::Instant() + absl::Seconds(10));
  EXPECT_EQ(StateOf(third), HEAPTAP_FILE_OUTSIDE);
  SetLastUsed(second, false);
  tables_->kernel().Balance(base::Instant() + absl::Seconds(10));  // not so soon again
  EXPECT_EQ(StateOf(third), HEAPTAP_FILE_OUTSIDE);
  tables_->kernel().Balance(base::Instant() + absl::Seconds(20));
  EXPECT_EQ(StateOf(first), HEAPTAP_FILE_LOADED);
  EXPECT_EQ(StateOf(second), HEAPTAP_FILE_OUTSIDE);
  EXPECT_EQ(StateOf(third), HEAPTAP_FILE_LOADED);
  EXPECT_EQ(tables_->kernel().bytes(), 2 * kNode);
  EXPECT_EQ(FindRule(second, kCode), Words(3));
}

TEST_F(UnwindTablesTest, TheLongestUnusedGoesFirst) {
  NEED_BPF(Load(3));
  MappedImage images[] = {MappedImage(Small(2)), MappedImage(Small(3)), MappedImage(Small(4)), MappedImage(Small(5))};
  for (int i = 0; i < 3; i++) {
    Enter(images[i]);
    std::optional<heaptap_file> file = maps().ReadFile(KeyOf(images[i]));
    file->last_used = 10 - static_cast<uint64_t>(i == 1 ? 5 : i);
    EXPECT_TRUE(maps().SetFile(KeyOf(images[i]), *file).ok());
  }
  Enter(images[3]);
  EXPECT_EQ(StateOf(images[0]), HEAPTAP_FILE_LOADED);
  EXPECT_EQ(StateOf(images[1]), HEAPTAP_FILE_OUTSIDE);
  EXPECT_EQ(StateOf(images[2]), HEAPTAP_FILE_LOADED);
  EXPECT_EQ(StateOf(images[3]), HEAPTAP_FILE_LOADED);
}

TEST_F(UnwindTablesTest, TableThatComesBackIsThereForAllWhoShareIt) {
  NEED_BPF(Load(1));
  MappedImage first(Small(2));
  MappedImage same(Small(2));
  MappedImage other(Small(3));
  Enter(first);
  Enter(same);
  Enter(other);
  EXPECT_EQ(StateOf(first), HEAPTAP_FILE_OUTSIDE);
  EXPECT_EQ(StateOf(same), HEAPTAP_FILE_OUTSIDE);
  EXPECT_EQ(StateOf(other), HEAPTAP_FILE_LOADED);
  SetLastUsed(other, false);
  SetLastUsed(first, true);
  SetLastUsed(same, true);
  tables_->kernel().Balance(base::Instant() + absl::Seconds(10));
  EXPECT_EQ(StateOf(first), HEAPTAP_FILE_LOADED);
  EXPECT_EQ(StateOf(same), HEAPTAP_FILE_LOADED);
  EXPECT_EQ(StateOf(other), HEAPTAP_FILE_OUTSIDE);
  EXPECT_EQ(maps().ReadFile(KeyOf(first))->table, maps().ReadFile(KeyOf(same))->table);
}

TEST_F(UnwindTablesTest, LargerThanTheBudget) {
  NEED_BPF(Load(2));
  MappedImage image(Image(600, 2));
  MappedImage small(Small(3));
  Enter(small);
  const std::string said = Enter(image);
  EXPECT_THAT(said, HasSubstr("12288 bytes, more than --unwind-memory allows"));
  EXPECT_EQ(Lines(said), 1);
  EXPECT_EQ(StateOf(image), HEAPTAP_FILE_OUTSIDE);
  EXPECT_EQ(StateOf(small), HEAPTAP_FILE_LOADED);
  EXPECT_EQ(FindRule(image, kCode + 2), Words(3));
  SetLastUsed(image, true);
  testing::internal::CaptureStderr();
  tables_->kernel().Balance(base::Instant() + absl::Seconds(10));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), IsEmpty());
  EXPECT_THAT(Enter(image), IsEmpty());
  EXPECT_EQ(StateOf(image), HEAPTAP_FILE_OUTSIDE);
}

TEST_F(UnwindTablesTest, AnotherFileThanTheOneAskedFor) {
  NEED_BPF(Load());
  MappedImage image(Small(2));
  heaptap_file_key key = KeyOf(image);
  key.inode++;
  EXPECT_THAT(Enter(key, image), IsEmpty());
  EXPECT_EQ(maps().ReadFile(key), std::nullopt);
  key = KeyOf(image);
  key.device++;
  EXPECT_THAT(Enter(key, image), IsEmpty());
  elf::Mapping gone = image.mapping;
  gone.start += 16 * 4096;
  gone.end += 16 * 4096;
  gone.path = "/nowhere";
  tables_->Enter(KeyOf(image), getpid(), gone);
  tables_->Enter(KeyOf(image), 0x7fffffff, gone);
  Settle();
  EXPECT_EQ(StateOf(image), -1);
}

// The kernel's entry can be lost: a program that finds no room for its request deletes it.
TEST_F(UnwindTablesTest, KnownFileThatTheKernelAsksForAgain) {
  NEED_BPF(Load());
  MappedImage image(Small(2));
  Enter(image);
  maps().RemoveFile(KeyOf(image));
  heaptap_file wanted = {};
  wanted.state = HEAPTAP_FILE_WANTED;
  EXPECT_TRUE(maps().SetFile(KeyOf(image), wanted).ok());
  Enter(image);
  EXPECT_EQ(StateOf(image), HEAPTAP_FILE_LOADED);
  maps().RemoveFile(KeyOf(image));
  Enter(image);
  EXPECT_EQ(StateOf(image), HEAPTAP_FILE_LOADED);
  EXPECT_EQ(tables_->kernel().bytes(), kNode);
}

TEST_F(UnwindTablesTest, MapOfFilesThatWasFull) {
  NEED_BPF(Load(100, 1));
  MappedImage first(Small(2));
  MappedImage second(Small(3));
  Enter(first);
  Enter(second);
  EXPECT_EQ(StateOf(second), -1);
  maps().RemoveFile(KeyOf(first));
  heaptap_file wanted = {};
  wanted.state = HEAPTAP_FILE_WANTED;
  EXPECT_TRUE(maps().SetFile(KeyOf(second), wanted).ok());
  Enter(second);
  EXPECT_EQ(StateOf(second), HEAPTAP_FILE_LOADED);
}

class WantedFileTest : public UnwindTablesTest {
 protected:
  // As an eBPF program does that meets the file.
  void Want(const MappedImage& image) {
    heaptap_file wanted = {};
    wanted.state = HEAPTAP_FILE_WANTED;
    EXPECT_TRUE(maps().SetFile(KeyOf(image), wanted).ok());
  }
  // The mapping in which it was found.
  std::optional<elf::Mapping> Find(const MappedImage& image, pid_t pid, std::vector<elf::Mapping> mappings) {
    std::optional<elf::Mapping> found;
    Want(image);
    tables_->Find(KeyOf(image), pid, image.At(kCode), std::move(mappings),
                  [&](const elf::Mapping& mapping) { found = mapping; });
    Settle();
    return found;
  }
};

TEST_F(WantedFileTest, IsFoundWhereItIsMapped) {
  NEED_BPF(Load());
  MappedImage image(Small(2));
  EXPECT_EQ(Find(image, getpid(), {image.mapping}), image.mapping);
  EXPECT_EQ(StateOf(image), HEAPTAP_FILE_LOADED);
}

TEST_F(WantedFileTest, IsFoundThoughItsMappingIsNotKnown) {
  NEED_BPF(Load());
  MappedImage image(Small(2));
  const std::optional<elf::Mapping> found = Find(image, getpid(), {});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->inode, image.mapping.inode);
  EXPECT_EQ(StateOf(image), HEAPTAP_FILE_LOADED);
}

TEST_F(WantedFileTest, OfAProcessThatIsGoneIsAskedForAgain) {
  NEED_BPF(Load());
  MappedImage image(Small(2));
  elf::Mapping gone = image.mapping;
  gone.path = "/nowhere";
  EXPECT_EQ(Find(image, 0x7fffffff, {gone}), std::nullopt);
  EXPECT_EQ(StateOf(image), -1);
}

// A process makes an endless series of different files.
TEST_F(UnwindTablesTest, FilesWithoutEnd) {
  NEED_BPF(Load(100, 20));
  tables_ = std::make_unique<UnwindTables>(Means(), 100 * kNode, 8);
  tables_->EnterVdso();
  const uint64_t before = tables_->kernel().bytes();
  MappedImage used(Small(1000));
  Enter(used);
  SetLastUsed(used, true);
  for (uint64_t i = 0; i < 60; i++) {
    MappedImage image(i % 2 == 0 ? Small(2 + i) : std::string("text"));
    Enter(image);
    EXPECT_EQ(StateOf(image), i % 2 == 0 ? HEAPTAP_FILE_LOADED : HEAPTAP_FILE_WITHOUT_TABLE);
    EXPECT_LE(tables_->kernel().bytes(), before + 8 * kNode);
    EXPECT_EQ(StateOf(used), HEAPTAP_FILE_LOADED);
  }
  EXPECT_EQ(maps().ReadFile({HEAPTAP_VDSO_INODE, 0, 0})->state, HEAPTAP_FILE_LOADED);
  EXPECT_EQ(FindRule(used, kCode), Words(1000));
}

TEST_F(UnwindTablesTest, SaysOnceWhatIsLargerThanTheBudget) {
  NEED_BPF(Load(2));
  MappedImage large(Image(2044, 2));  // larger than the cache of the collector, too
  EXPECT_EQ(Lines(Enter(large)), 1);
  MappedImage other_large(Image(2044, 3));
  EXPECT_EQ(Lines(Enter(other_large)), 1);
  for (uint64_t i = 0; i < 3; i++) {
    MappedImage other(Small(2 + i));
    Enter(other);
    EXPECT_THAT(Enter(large), IsEmpty());
    EXPECT_EQ(StateOf(large), HEAPTAP_FILE_OUTSIDE);
  }
}

// --- stacks that wait for tables ---

// A file that a process of a user maps who has no time left: its table is not read.
TEST_F(UnwindTablesTest, AStackDoesNotWaitForEver) {
  if (getuid() != 0) GTEST_SKIP() << "needs files of two users";
  NEED_BPF(Load());
  FakeClock clock;
  worker::Errands errands(worker::Urgency::kBackground, {}, absl::ZeroDuration());
  UnwindTables tables(MeansWith(errands), 100 * kNode);
  MappedImage late(Small(2));
  const Child of_user([] { return setuid(1234) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0; });
  ASSERT_TRUE(of_user.is_ready());
  tables.Enter(KeyOf(late), of_user.pid(), late.mapping);
  WaitUntil(errands, [&] { return tables.tables_read() == 1; });
  ASSERT_TRUE(tables.IsBeingRead(late.mapping));
  const auto space = std::make_shared<AddressSpace>();
  space->mappings.Add(late.mapping);
  bpf::SimulatedKernel kernel;
  const std::unique_ptr<bpf::Books> books = bpf::MakeSimulatedBooks(kernel, false);
  RawStacks stacks(books->unwind(), tables);
  constexpr uint64_t kProcess = 42;
  uint64_t process = kProcess;
  // Each with other memory, an eighth of all that may wait.
  uint64_t last_id = 0;
  const auto finish = [&] {
    bpf::RawStack raw = {.header = {.process_id = process, .stack_id = ++last_id}, .memory = {}};
    raw.header.frame.rip = raw.header.stack.frames[0] = late.At(kCode);
    raw.header.stack.count = 1;
    // The frame pointer leads to the address of another call in the file.
    raw.header.memory_begin = raw.header.frame.rsp = 0x10000;
    raw.header.frame.rbp = 0x10000 + sizeof(uint64_t);
    std::vector<uint8_t> memory(RawStacks::kMaxBytes / 8);
    const uint64_t other_call = late.At(kCode) + 1;
    memcpy(memory.data() + 2 * sizeof(other_call), &other_call, sizeof(other_call));
    raw.memory = unwind::StackCopy(memory);
    kernel.stacks[last_id] = {.count = 1, .end = HEAPTAP_STACK_UNFINISHED, .frames = {raw.header.frame.rip}};
    stacks.Finish(raw, getpid(), space);
    return kernel.stacks[last_id].end;
  };
  EXPECT_EQ(finish(), HEAPTAP_STACK_UNFINISHED);
  EXPECT_TRUE(stacks.IsWorthWaiting(kProcess, base::Now()));
  EXPECT_FALSE(stacks.IsWorthWaiting(kProcess, base::Now() + RawStacks::kPatience));
  // Others find no room, and end where their table is missing.
  for (int i = 0; i < 3; i++) EXPECT_EQ(finish(), HEAPTAP_STACK_UNFINISHED);
  EXPECT_EQ(finish(), HEAPTAP_STACK_NO_TABLE);
  EXPECT_EQ(kernel.stacks[last_id].count, 1);
  // Another process may have as much as is left.
  process = kProcess + 1;
  for (int i = 0; i < 2; i++) EXPECT_EQ(finish(), HEAPTAP_STACK_UNFINISHED);
  EXPECT_EQ(finish(), HEAPTAP_STACK_NO_TABLE);
  // Another table has been read.
  const auto retry = [&](uint64_t words) {
    MappedImage other(Small(words));
    tables.Enter(KeyOf(other), getpid(), other.mapping);
    WaitUntil(errands, [&] { return !tables.IsBeingRead(other.mapping); });
    stacks.Retry();
  };
  clock.Advance(RawStacks::kMaxWait - absl::Nanoseconds(1));
  retry(3);
  EXPECT_TRUE(stacks.IsWaiting(kProcess));
  clock.Advance(absl::Nanoseconds(1));
  retry(4);
  EXPECT_FALSE(stacks.IsWaiting(kProcess));
  EXPECT_TRUE(stacks.empty());
  for (const auto& [id, stack] : kernel.stacks) EXPECT_EQ(stack.end, HEAPTAP_STACK_NO_TABLE) << id;
}

// The collector missed the mapping, or the kernel asked for the table of another file of the stack.
TEST_F(UnwindTablesTest, AStackWaitsForTheLookAtAFile) {
  NEED_BPF(Load());
  const MappedImage image(Small(2));
  const auto space = std::make_shared<AddressSpace>();
  space->mappings.Add(image.mapping);
  bpf::SimulatedKernel kernel;
  const std::unique_ptr<bpf::Books> books = bpf::MakeSimulatedBooks(kernel, false);
  RawStacks stacks(books->unwind(), *tables_);
  constexpr uint64_t kProcess = 42, kStack = 1;
  bpf::RawStack raw = {.header = {.process_id = kProcess, .stack_id = kStack}, .memory = {}};
  raw.header.frame.rip = raw.header.stack.frames[0] = image.At(kCode);
  raw.header.stack.count = 1;
  kernel.stacks[kStack] = {.count = 1, .end = HEAPTAP_STACK_UNFINISHED, .frames = {raw.header.frame.rip}};
  stacks.Finish(raw, getpid(), space);
  EXPECT_TRUE(stacks.IsWaiting(kProcess));
  EXPECT_FALSE(tables_->HasFileOf(image.mapping));
  Settle();
  stacks.Retry();
  EXPECT_FALSE(stacks.IsWaiting(kProcess));
  EXPECT_EQ(FindRule(image, kCode), Words(2));
  EXPECT_NE(kernel.stacks[kStack].end, HEAPTAP_STACK_UNFINISHED);
  EXPECT_NE(kernel.stacks[kStack].end, HEAPTAP_STACK_NO_TABLE);
}

// Its frames ask all at once, and so do its other stacks.
TEST_F(UnwindTablesTest, AMappingWithoutAFileIsLookedAtOnce) {
  NEED_BPF(Load());
  FakeClock clock;
  const elf::Mapping mapping = MappedImage(Small(2)).mapping;
  EXPECT_TRUE(tables_->EnterMapped(getpid(), mapping));
  EXPECT_TRUE(tables_->EnterMapped(getpid(), mapping));
  Settle();
  EXPECT_EQ(tables_->tables_read(), 1u);
  EXPECT_FALSE(tables_->EnterMapped(getpid(), mapping));
  clock.Advance(absl::Seconds(1));
  EXPECT_TRUE(tables_->EnterMapped(getpid(), mapping));
  Settle();
}

// --- the tables of an earlier collector ------------------------------------------------------------------------------

TEST_F(UnwindTablesTest, TablesOfAnEarlierCollectorServeUntilTheFileIsRead) {
  NEED_BPF(Load());
  MappedImage image(Small(2));
  MappedImage twin(Small(2));
  MappedImage text("text");
  for (const MappedImage* one : {&image, &twin, &text}) Enter(*one);
  const uint32_t before = TableOf(image);
  EXPECT_EQ(TableOf(twin), before);
  Restart();
  EXPECT_EQ(tables_->kernel().bytes(), kNode);
  tables_->Enter(KeyOf(image), getpid(), image.mapping);
  // It is being read.
  EXPECT_EQ(StateOf(image), HEAPTAP_FILE_LOADED);
  EXPECT_EQ(TableOf(image), before);
  Settle();
  EXPECT_EQ(StateOf(image), HEAPTAP_FILE_LOADED);
  EXPECT_GT(TableOf(image), before);
  EXPECT_EQ(FindRule(image, kCode), Words(2));
  EXPECT_EQ(tables_->kernel().bytes(), 2 * kNode);
  EXPECT_EQ(TableOf(twin), before);
  Enter(twin);
  EXPECT_EQ(TableOf(twin), TableOf(image));
  EXPECT_THAT(maps().CountNodes(), ElementsAre(Pair(TableOf(image), 1)));
  EXPECT_EQ(StateOf(text), HEAPTAP_FILE_WITHOUT_TABLE);
}

TEST_F(UnwindTablesTest, TablesOfAnEarlierCollectorGoAfterAWhile) {
  NEED_BPF(Load());
  MappedImage image(Small(2));
  MappedImage other(Small(3));
  Enter(image);
  Enter(other);
  Restart();
  Enter(other);
  tables_->kernel().Balance(base::Instant() + absl::Seconds(1000));
  tables_->kernel().Balance(base::Instant() + absl::Seconds(1009));
  EXPECT_EQ(StateOf(image), HEAPTAP_FILE_LOADED);
  tables_->kernel().Balance(base::Instant() + absl::Seconds(1010));
  EXPECT_EQ(StateOf(image), -1);
  EXPECT_EQ(StateOf(other), HEAPTAP_FILE_LOADED);
  EXPECT_THAT(maps().CountNodes(), ElementsAre(Pair(TableOf(other), 1)));
  EXPECT_EQ(tables_->kernel().bytes(), kNode);
}

TEST_F(UnwindTablesTest, TablesOfAnEarlierCollectorMakeRoom) {
  NEED_BPF(Load(4));
  MappedImage image(Small(2));
  MappedImage large(Image(600, 3));  // three nodes
  Enter(image);
  Enter(large);
  Restart(4);
  EXPECT_EQ(tables_->kernel().bytes(), 4 * kNode);
  Enter(image);
  EXPECT_EQ(StateOf(image), HEAPTAP_FILE_LOADED);
  EXPECT_EQ(StateOf(large), -1);
  EXPECT_THAT(maps().CountNodes(), ElementsAre(Pair(TableOf(image), 1)));
  Enter(large);
  EXPECT_EQ(StateOf(large), HEAPTAP_FILE_LOADED);
  EXPECT_EQ(tables_->kernel().bytes(), 4 * kNode);
}

// A collector that was killed while it loaded or unloaded a table.
TEST_F(UnwindTablesTest, HalfATableOfAnEarlierCollectorGoesAtOnce) {
  NEED_BPF(Load());
  const uint32_t half = maps().NewTable();
  EXPECT_TRUE(maps().AddNodes(half, 0, std::vector<heaptap_rows>(3)).ok());
  maps().RemoveTable(half, 2);
  EXPECT_THAT(maps().CountNodes(), ElementsAre(Pair(half, 3)));
  MappedImage image(Small(2));
  heaptap_file wanted = {};
  wanted.state = HEAPTAP_FILE_WANTED;
  EXPECT_TRUE(maps().SetFile(KeyOf(image), wanted).ok());
  Restart();
  EXPECT_THAT(maps().CountNodes(), IsEmpty());
  EXPECT_EQ(StateOf(image), -1);
  Enter(image);
  EXPECT_EQ(TableOf(image), half + 1) << "a cached row of the earlier table may still be there";
}

// --- invalid files ---------------------------------------------------------------------------------------------------

struct Malformed {
  const char* name;
  std::string bytes;
};

std::string WithFrames(const std::string& frames) {
  EhFrame section;
  section.bytes = frames;
  return unwind::ImageWith(section).Bytes();
}

EhFrame GoodFrames() {
  EhFrame frames;
  const uint64_t cie = frames.AddCie();
  for (uint64_t i = 0; i < 8; i++) frames.AddFde(cie, kCode + 0x20 * i, 0x20, unwind::DefCfaOffset(16 + 8 * i));
  return frames;
}

std::string WithCie(const unwind::CieFields& cie) {
  EhFrame frames;
  frames.AddFde(frames.AddCie(cie), kCode, 0x20, "");
  return unwind::ImageWith(frames).Bytes();
}

std::vector<Malformed> MalformedFiles() {
  using elf::BytesOf;
  std::vector<Malformed> files;
  const std::string good = GoodFrames().bytes;
  for (const size_t size : {size_t{5}, size_t{12}, size_t{30}, good.size() - 1}) {
    files.push_back({"truncated", WithFrames(good.substr(0, size))});
  }
  EhFrame frames = GoodFrames();
  frames.AddEntry(BytesOf(uint32_t{0}), 1000);
  files.push_back({"entry longer than the section", unwind::ImageWith(frames).Bytes()});
  files.push_back({"length of 4 GiB", WithFrames(good + BytesOf(uint32_t{0xfffffff0}) + std::string(64, 'x'))});
  files.push_back({"length of 2^64", WithFrames(good + BytesOf(uint32_t{0xffffffff}) + BytesOf(~uint64_t{0}))});
  files.push_back({"length of 2^63", WithFrames(BytesOf(uint32_t{0xffffffff}) + BytesOf(uint64_t{1} << 63) + good)});

  // The CIE pointer of an entry at offset 0 whose distance is 4 points to itself.
  files.push_back({"FDE that is its own CIE", WithFrames(BytesOf(uint32_t{20}) + BytesOf(uint32_t{4}) +
                                                         BytesOf(uint64_t{kCode}) + BytesOf(uint64_t{16}))});
  // Each of two says that the other is its CIE.
  const std::string body = BytesOf(uint64_t{kCode}) + BytesOf(uint64_t{16});
  files.push_back({"two FDEs in a circle", WithFrames(BytesOf(uint32_t{20}) + BytesOf(int32_t{4 - 24}) + body +
                                                      BytesOf(uint32_t{20}) + BytesOf(uint32_t{28}) + body)});
  for (const uint32_t distance : {0x7fffffffu, 0x80000000u, 0xffffffffu, 1u}) {
    files.push_back({"CIE pointer that leads nowhere", WithFrames(BytesOf(uint32_t{20}) + BytesOf(distance) + body)});
  }

  for (const char* augmentation : {"eh", "q", "R", "\xff"}) {
    unwind::CieFields cie;
    cie.augmentation = augmentation;
    files.push_back({"augmentation", WithCie(cie)});
  }
  unwind::CieFields cie;
  cie.augmentation = "zPLR";
  cie.augmentation_data = "\x1b";  // no personality
  files.push_back({"augmentation data cut short", WithCie(cie)});
  cie = {};
  cie.version = 9;
  files.push_back({"version", WithCie(cie)});
  cie = {};
  cie.return_address = 3;
  files.push_back({"return address column", WithCie(cie)});
  cie = {};
  cie.instructions = unwind::kRestoreState;
  files.push_back({"restore without remember", WithCie(cie)});
  cie = {};
  cie.instructions = "\x0c" + std::string(11, '\xff');
  files.push_back({"number of more than 64 bits", WithCie(cie)});
  cie = {};
  cie.augmentation_data = "\x7f";
  files.push_back({"pointer encoding", WithCie(cie)});

  frames = {};
  frames.AddFde(frames.AddCie(), kCode, 0x20, unwind::Byte(0x3f));
  files.push_back({"unknown instruction", unwind::ImageWith(frames).Bytes()});
  frames = {};
  frames.AddFde(frames.AddCie(), kCode + (1 << 30), 0x20, "");
  files.push_back({"function where no code is", unwind::ImageWith(frames).Bytes()});
  frames = {};
  cie = {};
  cie.augmentation_data = unwind::Byte(0x04);  // absolute, 8 bytes
  frames.AddFdeWith(frames.AddCie(cie), BytesOf(~uint64_t{7}) + BytesOf(~uint64_t{7}) + unwind::Byte(0));
  files.push_back({"function beyond the end of all addresses", unwind::ImageWith(frames).Bytes()});

  const auto with_section = [](uint64_t offset, uint64_t size) {
    elf::ElfImage image = unwind::ImageWithCode();
    Elf64_Shdr& section = image.AddSection(".eh_frame", SHT_PROGBITS, "x", unwind::kFrames);
    section.sh_offset = offset;
    section.sh_size = size;
    return image.Bytes();
  };
  files.push_back({"section beyond the end of the file", with_section(1 << 30, 100)});
  files.push_back({"section of 2^63 bytes", with_section(0x1000, uint64_t{1} << 63)});
  files.push_back({"section of 2^64 - 1 bytes", with_section(1, ~uint64_t{0})});
  files.push_back({"section at offset 2^64 - 8", with_section(~uint64_t{7}, 8)});
  files.push_back({"section of 1 GiB", with_section(0, 1 << 30)});

  elf::ElfImage image = unwind::ImageWithCode();
  image.AddSegment(PT_GNU_EH_FRAME, PF_R, ~uint64_t{0}, ~uint64_t{0}, 0);
  files.push_back({"header beyond the end of the file", image.Bytes()});
  image = unwind::ImageWithCode();
  const uint64_t offset = image.AddBytes("\x01\x1b\x03\xff" + BytesOf(uint32_t{0x70000000}) + BytesOf(~uint32_t{0}));
  image.AddSegment(PT_GNU_EH_FRAME, PF_R, offset, 12, unwind::kFrames);
  files.push_back({"header that points nowhere", image.Bytes()});

  image = unwind::ImageWith(GoodFrames());
  image.header.e_phentsize = 1;
  files.push_back({"entries of 1 byte", image.Bytes()});
  image = {};
  image.AddSection(".eh_frame", SHT_PROGBITS, good, unwind::kFrames);
  files.push_back({"no code", image.Bytes()});

  // Many rows in little space: the same function in as many segments as there can be.
  image = elf::ElfImage();
  frames = {};
  const uint64_t first = frames.AddCie();
  for (uint64_t i = 0; i < 2400; i++) frames.AddFde(first, kCode + i, 1, unwind::DefCfaOffset(8 + i % 2 * 8));
  for (uint64_t i = 0; i < 2000; i++) image.AddSegment(PT_LOAD, PF_R | PF_X, 0x1000 * i, 0x1000, kCode);
  image.AddSection(".eh_frame", SHT_PROGBITS, frames.bytes, unwind::kFrames);
  files.push_back({"2000 segments at one address", image.Bytes()});
  return files;
}

TEST_F(UnwindTablesTest, MalformedFilesCostOneLineEach) {
  NEED_BPF(Load());
  for (const Malformed& one : MalformedFiles()) {
    MappedImage image(one.bytes);
    const std::string said = Enter(image);
    EXPECT_EQ(Lines(said), 1) << one.name << ": " << said;
    EXPECT_THAT(said, HasSubstr("no unwind table for")) << one.name;
    EXPECT_EQ(StateOf(image), HEAPTAP_FILE_WITHOUT_TABLE) << one.name;
    EXPECT_EQ(FindRule(image, kCode), 0) << one.name;
    // Once.
    EXPECT_THAT(Enter(image), IsEmpty()) << one.name;
  }
  EXPECT_EQ(tables_->kernel().bytes(), 0);
}

// One broken function costs only itself.
TEST_F(UnwindTablesTest, OneBrokenFunctionAmongGoodOnes) {
  NEED_BPF(Load());
  EhFrame frames = GoodFrames();
  frames.AddFde(0, kCode + 0x200, 0x20, unwind::Byte(0x3f));
  MappedImage image(unwind::ImageWith(frames).Bytes());
  EXPECT_THAT(Enter(image), IsEmpty());
  EXPECT_EQ(StateOf(image), HEAPTAP_FILE_LOADED);
  EXPECT_EQ(FindRule(image, kCode + 0x20), Words(3));
  EXPECT_EQ(FindRule(image, kCode + 0x200), 0);
}

TEST_F(UnwindTablesTest, FilesThatAreNoneOfOurBusiness) {
  NEED_BPF(Load());
  for (const std::string& bytes : {std::string("text"),
                                   std::string("\x7f"
                                               "ELF\x01\x01\x01",
                                               7),
                                   std::string()}) {
    MappedImage image(bytes);
    EXPECT_THAT(Enter(image), IsEmpty());
    EXPECT_EQ(StateOf(image), HEAPTAP_FILE_WITHOUT_TABLE);
  }
}

// Each byte of a valid file is corrupted in turn: there is a table, or there is none and one line gives the reason; no
// line if the file is not ours any more.
TEST_F(UnwindTablesTest, EveryByteBroken) {
  NEED_BPF(Load(4000));
  const std::string good = unwind::ImageWith(GoodFrames()).Bytes();
  int loaded = 0;
  int64_t lines = 0;
  for (size_t i = 0; i < good.size(); i += 3) {
    std::string bytes = good;
    bytes[i] = static_cast<char>(bytes[i] ^ (i % 2 == 0 ? 0xff : 0x80));
    MappedImage image(bytes);
    const std::string said = Enter(image);
    const bool is_loaded = StateOf(image) == HEAPTAP_FILE_LOADED;
    EXPECT_EQ(Lines(said), is_loaded || said.empty() ? 0 : 1) << i << ": " << said;
    if (!is_loaded) {
      EXPECT_EQ(StateOf(image), HEAPTAP_FILE_WITHOUT_TABLE) << i;
      EXPECT_EQ(FindRule(image, kCode), 0) << i;
    }
    loaded += is_loaded;
    lines += Lines(said);
    maps().RemoveFile(KeyOf(image));
  }
  EXPECT_GT(loaded, 50) << "many bytes do not matter";
  EXPECT_GT(lines, 20);
}

}  // namespace
}  // namespace heaptap::recording
