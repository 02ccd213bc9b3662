// SPDX-License-Identifier: Apache-2.0
//
// Tests the collector's unwind tables, on the real kernel, for files that this process maps.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/need_bpf.h"
#include "tests/unit/unwind_tables_fixture.h"
#include "userspace/base/clock.h"
#include "userspace/process/maps.h"
#include "userspace/symbolize/debug_files.h"
#include "userspace/tables/raw_stacks.h"

namespace heaptap::recording {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

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

}  // namespace
}  // namespace heaptap::recording
