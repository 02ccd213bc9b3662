// SPDX-License-Identifier: Apache-2.0
//
// Tests, on the real kernel, the books of other builds: maps of another layout (tests/unit/other_layout.bpf.c), and
// our own.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/need_bpf.h"
#include "tests/unit/other_layout.h"
#include "tests/unit/other_layout.skel.h"
#include "tests/unit/support/child.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/bpf/kernel_books.h"
#include "userspace/bpf/kernel_error.h"
#include "userspace/bpf/other_layout.h"
#include "userspace/bpf/pins.h"

namespace heaptap::bpf {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A folder of the BPF file system, with a layout that is not the collector's.
class PinnedLayout {
 public:
  PinnedLayout() = default;
  PinnedLayout(const PinnedLayout&) = delete;
  PinnedLayout& operator=(const PinnedLayout&) = delete;
  ~PinnedLayout() {
    if (!collector_.has_value()) return;
    other_->RemoveAll();
    collector_->RemoveAll();
    rmdir(base_.c_str());
  }

  absl::Status Open(const std::string& layout) {
    absl::StatusOr<Pins> pins = Pins::Open(base_, "collector");
    if (!pins.ok()) return pins.status();
    collector_.emplace(*std::move(pins));
    other_.emplace(collector_->Other(layout));
    if (mkdir(other_->folder().c_str(), 0700) != 0) return KernelError(errno, "making the other layout's folder");
    return absl::OkStatus();
  }

  const Pins& pins() const { return *other_; }

 private:
  const std::string base_ = absl::StrCat("/sys/fs/bpf/heaptap-test-", getpid());
  std::optional<Pins> collector_;
  std::optional<Pins> other_;
};

template <typename Key, typename Value>
void Put(int map, const Key& key, const Value& value) {
  EXPECT_EQ(bpf_map_update_elem(map, &key, &value, BPF_ANY), 0);
}

template <typename Key, typename Value>
void Put(const bpf_map* map, const Key& key, const Value& value) {
  Put(bpf_map__fd(map), key, value);
}

std::array<uint64_t, 8> Numbers(const heaptap_tally& tally) {
  const auto& [allocated, freed] = tally;
  return {allocated.objects, allocated.bytes, allocated.weight, allocated.weighted_objects,
          freed.objects,     freed.bytes,     freed.weight,     freed.weighted_objects};
}

class OtherLayoutTest : public ::testing::Test {
 protected:
  absl::Status Load() {
    QuietLibbpf();
    maps_.reset(other_layout_bpf::open_and_load());
    if (maps_ == nullptr) return KernelError(errno, "loading maps");
    if (absl::Status status = layout_.Open("other"); !status.ok()) return status;
    for (const auto& [name, map] : Named()) Pin(name, map);
    return absl::OkStatus();
  }

  // Valid entries.
  std::vector<std::pair<std::string, const bpf_map*>> Named() const {
    return {{"processes", maps_->maps.processes}, {"tallies", maps_->maps.tallies},
            {"stacks", maps_->maps.stacks},       {"losses", maps_->maps.losses},
            {"unnoticed", maps_->maps.unnoticed}, {"forgotten", maps_->maps.forgotten}};
  }

  void Pin(const std::string& name, const bpf_map* map) {
    pins().Remove("map_" + name);
    const absl::Status status = pins().Pin(bpf_map__fd(map), "map_" + name);
    EXPECT_TRUE(status.ok()) << status;
  }

  void PutTally(uint64_t process_id, uint64_t stack_id, uint32_t tid, uint32_t first = 1) {
    // What was not written must not be read.
    const auto count = [](uint32_t number) {
      return other_count{number + 3ULL, number, number + 2ULL, ~0ULL, number + 1ULL};
    };
    const other_tally tally = {0xff, count(first + 4), {~0ULL, count(first)}};
    Put(maps_->maps.tallies, other_tally_key{.tid = tid, .cgroup = 99, .stack_id = stack_id, .process_id = process_id},
        tally);
  }

  // Its frames are 1000, 1001 and so on.
  void PutStack(uint64_t id, uint16_t count, uint16_t end) {
    other_stack stack = {};
    for (uint64_t i = 0; i < OTHER_FRAMES; i++) stack.frames[i] = 1000 + i;
    stack.count = count;
    stack.end = end;
    Put(maps_->maps.stacks, id, stack);
  }

  OtherBooks Read() {
    absl::StatusOr<OtherBooks> books = ReadOtherLayout(pins());
    EXPECT_TRUE(books.ok()) << books.status();
    return books.ok() ? *std::move(books) : OtherBooks{};
  }

  const Pins& pins() const { return layout_.pins(); }

  struct Destroy {
    void operator()(other_layout_bpf* maps) const { other_layout_bpf::destroy(maps); }
  };
  std::unique_ptr<other_layout_bpf, Destroy> maps_;
  PinnedLayout layout_;
};

TEST_F(OtherLayoutTest, EmptyMaps) {
  NEED_BPF(Load());
  const OtherBooks books = Read();
  EXPECT_THAT(books.processes, IsEmpty());
  EXPECT_THAT(books.tallies, IsEmpty());
  EXPECT_THAT(books.stacks, IsEmpty());
  EXPECT_THAT(books.losses, IsEmpty());
}

TEST_F(OtherLayoutTest, Processes) {
  NEED_BPF(Load());
  const auto process = [](uint64_t id, uint16_t flags, uint32_t parent_tgid) {
    return other_process{
        .flags = flags, .comment = "unread", .allocated_weight = 1, .parent_tgid = parent_tgid, .id = id};
  };
  Put(maps_->maps.processes, uint32_t{1000}, process(10, HEAPTAP_PROCESS_FOLLOW | 0x8000, 1));
  Put(maps_->maps.processes, uint32_t{1001}, process(10, HEAPTAP_PROCESS_SHARES_PARENT, 1000));
  Put(maps_->maps.processes, uint32_t{1002}, process(16, 0, 1));
  // Garbage.
  Put(maps_->maps.processes, uint32_t{0}, process(20, 0, 1));
  Put(maps_->maps.processes, uint32_t{0x80000000}, process(22, 0, 1));
  Put(maps_->maps.unnoticed, uint64_t{14}, process(14, HEAPTAP_PROCESS_FOLLOW, 2000));
  Put(maps_->maps.unnoticed, uint64_t{16}, process(16, 0, 2001));
  Put(maps_->maps.unnoticed, uint64_t{24}, process(24, 0, 0));
  Put(maps_->maps.unnoticed, uint64_t{26}, process(26, 0, 2002));
  // Their books were closed.
  Put(maps_->maps.forgotten, uint64_t{26}, uint8_t{1});
  Put(maps_->maps.forgotten, uint64_t{28}, uint8_t{1});
  // Their books ended without a last dump.
  Put(maps_->maps.unnoticed, uint64_t{32}, process(32, HEAPTAP_PROCESS_EXECED, 2003));
  Put(maps_->maps.unnoticed, uint64_t{34}, process(34, HEAPTAP_PROCESS_RESET, 2004));
  for (const uint64_t id : {10, 28, 30, 32, 34}) PutTally(id, 0, 1);

  const OtherBooks books = Read();
  ASSERT_THAT(books.processes, SizeIs(3));
  EXPECT_EQ(books.processes[0].process_id, 10);
  EXPECT_EQ(books.processes[0].tgid, 1000);
  EXPECT_EQ(books.processes[0].flags, HEAPTAP_PROCESS_FOLLOW | 0x8000);
  EXPECT_FALSE(books.processes[0].ended);
  EXPECT_EQ(books.processes[1].process_id, 14);
  EXPECT_EQ(books.processes[1].tgid, 2000);
  EXPECT_EQ(books.processes[1].flags, HEAPTAP_PROCESS_FOLLOW);
  EXPECT_TRUE(books.processes[1].ended);
  EXPECT_EQ(books.processes[2].process_id, 16);
  EXPECT_EQ(books.processes[2].tgid, 1002);
  EXPECT_FALSE(books.processes[2].ended);
  std::vector<uint64_t> with_tallies;
  for (const auto& [id, entries] : books.tallies) with_tallies.push_back(id);
  EXPECT_THAT(with_tallies, ElementsAre(10, 30));
}

TEST_F(OtherLayoutTest, Tallies) {
  NEED_BPF(Load());
  PutTally(10, 77, 5, 100);
  PutTally(10, HEAPTAP_NO_STACK, ~0u, 0xfffffff0);
  PutTally(~0ULL, 78, 1, 200);
  OtherBooks books = Read();
  ASSERT_THAT(books.tallies, SizeIs(2));
  std::vector<TallyEntry>& entries = books.tallies[10];
  ASSERT_THAT(entries, SizeIs(2));
  std::sort(entries.begin(), entries.end(),
            [](const TallyEntry& a, const TallyEntry& b) { return a.stack_id < b.stack_id; });
  EXPECT_EQ(entries[0].stack_id, HEAPTAP_NO_STACK);
  EXPECT_EQ(entries[0].tid, ~0u);
  EXPECT_THAT(Numbers(entries[0].tally), ElementsAre(0xfffffff0, 0xfffffff1, 0xfffffff2, 0xfffffff3, 0xfffffff4,
                                                     0xfffffff5, 0xfffffff6, 0xfffffff7));
  EXPECT_EQ(entries[1].stack_id, 77);
  EXPECT_EQ(entries[1].tid, 5);
  EXPECT_THAT(Numbers(entries[1].tally), ElementsAre(100, 101, 102, 103, 104, 105, 106, 107));
  ASSERT_THAT(books.tallies[~0ULL], SizeIs(1));
  EXPECT_THAT(Numbers(books.tallies[~0ULL][0].tally), ElementsAre(200, 201, 202, 203, 204, 205, 206, 207));
}

TEST_F(OtherLayoutTest, Stacks) {
  NEED_BPF(Load());
  for (const uint64_t id : {70, 71, 72, 73, 74, 75}) PutTally(10, id, 1);
  PutTally(12, 70, 2);
  PutStack(70, 3, HEAPTAP_STACK_NO_RULE);
  PutStack(71, HEAPTAP_MAX_FRAMES, HEAPTAP_STACK_WHOLE);
  PutStack(72, HEAPTAP_MAX_FRAMES + 1, HEAPTAP_STACK_WHOLE);
  PutStack(73, 0xffff, HEAPTAP_STACK_NO_CODE);
  PutStack(74, 0, HEAPTAP_STACK_ENDS);
  // 75 is missing, 76 belongs to no process.
  PutStack(76, 3, HEAPTAP_STACK_WHOLE);

  OtherBooks books = Read();
  std::vector<uint64_t> ids;
  for (const auto& [id, stack] : books.stacks) ids.push_back(id);
  ASSERT_THAT(ids, ElementsAre(70, 71, 72, 73, 74));
  EXPECT_THAT(books.stacks[70].frames, ElementsAre(1000, 1001, 1002));
  EXPECT_EQ(books.stacks[70].end, HEAPTAP_STACK_NO_RULE);
  EXPECT_THAT(books.stacks[71].frames, SizeIs(HEAPTAP_MAX_FRAMES));
  EXPECT_EQ(books.stacks[71].end, HEAPTAP_STACK_WHOLE);
  for (const uint64_t id : {72, 73}) {
    ASSERT_THAT(books.stacks[id].frames, SizeIs(HEAPTAP_MAX_FRAMES));
    EXPECT_EQ(books.stacks[id].frames.back(), 1000 + HEAPTAP_MAX_FRAMES - 1);
    EXPECT_EQ(books.stacks[id].end, HEAPTAP_STACK_TRUNCATED);
  }
  EXPECT_THAT(books.stacks[74].frames, IsEmpty());
  EXPECT_EQ(books.stacks[74].end, HEAPTAP_STACK_TRUNCATED);
}

TEST_F(OtherLayoutTest, StacksOfFewerFrames) {
  NEED_BPF(Load());
  Pin("stacks", maps_->maps.short_stacks);
  for (const uint64_t id : {70, 71, 72}) PutTally(10, id, 1);
  const auto stack = [](uint64_t count, uint64_t end) {
    return other_short_stack{.end = end, .count = count, .frames = {1, 2, 3, 4}};
  };
  Put(maps_->maps.short_stacks, uint64_t{70}, stack(OTHER_FEW_FRAMES, HEAPTAP_STACK_WHOLE));
  Put(maps_->maps.short_stacks, uint64_t{71}, stack(1ULL << 32, HEAPTAP_STACK_WHOLE));
  Put(maps_->maps.short_stacks, uint64_t{72}, stack(1, 1ULL << 32));
  OtherBooks books = Read();
  EXPECT_THAT(books.stacks[70].frames, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(books.stacks[70].end, HEAPTAP_STACK_WHOLE);
  EXPECT_THAT(books.stacks[71].frames, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(books.stacks[71].end, HEAPTAP_STACK_TRUNCATED);
  EXPECT_THAT(books.stacks[72].frames, ElementsAre(1));
  EXPECT_EQ(books.stacks[72].end, HEAPTAP_STACK_TRUNCATED);
}

TEST_F(OtherLayoutTest, Losses) {
  NEED_BPF(Load());
  const auto lose = [&](uint64_t process_id, uint64_t reason, uint64_t events, uint64_t weight) {
    Put(maps_->maps.losses, other_loss_key{reason, process_id}, other_loss{weight, ~0ULL, events});
  };
  lose(0, HEAPTAP_LOSS_PROCESSES_FULL, 1, 2);
  lose(10, HEAPTAP_LOSS_LIVE_FULL, 3, 4);
  lose(10, HEAPTAP_LOSS_REASONS - 1, 5, 6);
  lose(10, HEAPTAP_NO_LOSS, 7, 7);
  lose(10, HEAPTAP_LOSS_REASONS, 7, 7);
  lose(10, (1ULL << 32) + HEAPTAP_LOSS_BAD_SAMPLE, 7, 7);
  lose(12, HEAPTAP_LOSS_LIVE_FULL, 8, 8);
  Put(maps_->maps.forgotten, uint64_t{12}, uint8_t{1});

  OtherBooks books = Read();
  ASSERT_THAT(books.losses, SizeIs(2));
  EXPECT_EQ(books.losses[0][HEAPTAP_LOSS_PROCESSES_FULL].events, 1);
  EXPECT_EQ(books.losses[0][HEAPTAP_LOSS_PROCESSES_FULL].weight, 2);
  for (uint32_t reason = 0; reason < HEAPTAP_LOSS_REASONS; reason++) {
    const heaptap_loss& loss = books.losses[10][reason];
    const bool first = reason == HEAPTAP_LOSS_LIVE_FULL;
    const bool last = reason == HEAPTAP_LOSS_REASONS - 1;
    EXPECT_EQ(loss.events, first ? 3 : last ? 5 : 0) << reason;
    EXPECT_EQ(loss.weight, first ? 4 : last ? 6 : 0) << reason;
  }
}

// More than one system call reads.
TEST_F(OtherLayoutTest, FullMaps) {
  NEED_BPF(Load());
  for (uint32_t i = 0; i < OTHER_ENTRIES; i++) {
    PutTally(10 + i % 3, i + 1, i, i);
    PutStack(i + 1, 1 + i % OTHER_FRAMES, HEAPTAP_STACK_WHOLE);
  }
  const OtherBooks books = Read();
  std::vector<int> seen(OTHER_ENTRIES);
  for (const auto& [process_id, entries] : books.tallies) {
    for (const TallyEntry& entry : entries) {
      ASSERT_LT(entry.tid, OTHER_ENTRIES);
      seen[entry.tid]++;
      EXPECT_EQ(process_id, 10 + entry.tid % 3);
      EXPECT_EQ(entry.stack_id, entry.tid + 1);
      EXPECT_EQ(entry.tally.allocated.objects, entry.tid);
      const auto stack = books.stacks.find(entry.stack_id);
      ASSERT_NE(stack, books.stacks.end());
      EXPECT_EQ(stack->second.frames.size(), std::min<uint32_t>(1 + entry.tid % OTHER_FRAMES, HEAPTAP_MAX_FRAMES));
    }
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), OTHER_ENTRIES);
  EXPECT_THAT(books.stacks, SizeIs(OTHER_ENTRIES));
}

TEST_F(OtherLayoutTest, MissingMaps) {
  NEED_BPF(Load());
  for (const auto& [name, map] : Named()) {
    pins().Remove("map_" + name);
    const absl::StatusOr<OtherBooks> books = ReadOtherLayout(pins());
    if (name == "processes" || name == "tallies" || name == "stacks") {
      EXPECT_TRUE(absl::IsFailedPrecondition(books.status())) << name << ": " << books.status();
      EXPECT_THAT(std::string(books.status().message()), HasSubstr(absl::StrCat("map ", name, " is missing")));
    } else {
      EXPECT_TRUE(books.ok()) << name << ": " << books.status();
    }
    Pin(name, map);
  }
  EXPECT_TRUE(ReadOtherLayout(pins()).ok());
}

TEST_F(OtherLayoutTest, Unreadable) {
  NEED_BPF(Load());
  const struct {
    const char* name;
    const bpf_map* map;
    const char* why;
  } cases[] = {
      {"processes", maps_->maps.nameless, "field id of its values is missing"},
      {"processes", maps_->maps.bits, "field id of its values is missing"},
      {"processes", maps_->maps.pointed, "field id of its values is not an integer"},
      {"processes", maps_->maps.keyed, "one of its keys is not an integer"},
      {"processes", maps_->maps.forgotten, "field id of its values is missing"},
      {"tallies", maps_->maps.tallies_of_one, "field freed.weighted_objects of its values is missing"},
      {"tallies", maps_->maps.by_processor, "it is not a hash map"},
      {"tallies", maps_->maps.processes, "field process_id of its keys is missing"},
      {"stacks", maps_->maps.narrow, "field frames of its values is not an array of 64-bit integers"},
      {"stacks", maps_->maps.single, "field frames of its values is not an array"},
      {"stacks", maps_->maps.endless, "field frames of its values is out of place"},
      {"stacks", maps_->maps.huge, "its values have 80008"},
      {"losses", maps_->maps.tallies, "field reason of its keys is missing"},
      {"unnoticed", maps_->maps.nameless, "field parent_tgid of its values is missing"},
      {"forgotten", maps_->maps.keyed, "one of its keys is not an integer"},
  };
  for (const auto& [name, map, why] : cases) {
    Pin(name, map);
    const absl::Status status = ReadOtherLayout(pins()).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << name << ": " << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(absl::StrCat("map_", name, " ")), HasSubstr(why)));
    for (const auto& [good_name, good] : Named()) Pin(good_name, good);
    EXPECT_TRUE(ReadOtherLayout(pins()).ok());
  }
}

// Has the right name, but keys that cannot be looked up.
TEST_F(OtherLayoutTest, StacksUnderOtherKeys) {
  NEED_BPF(Load());
  Pin("stacks", maps_->maps.half_keyed);
  PutTally(10, 70, 1);
  const absl::Status status = ReadOtherLayout(pins()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("map_stacks"), HasSubstr("keys are not 64-bit integers")));
}

TEST_F(OtherLayoutTest, MapsWithoutTypes) {
  NEED_BPF(Load());
  const base::FileDescriptor map(bpf_map_create(BPF_MAP_TYPE_HASH, "untyped", 8, 8, 1, nullptr));
  pins().Remove("map_tallies");
  ASSERT_TRUE(pins().Pin(map.get(), "map_tallies").ok());
  const absl::Status status = ReadOtherLayout(pins()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("map_tallies"), HasSubstr("has no BTF")));
}

// The maps of our own programs.
class OwnLayoutTest : public ::testing::Test {
 protected:
  absl::Status Load() {
    if (absl::Status status = layout_.Open(KernelBooks::Layout()); !status.ok()) return status;
    MapSizes sizes;
    sizes.processes = 64;
    sizes.stacks = 64;
    sizes.live = 64;
    sizes.tallies = 64;
    sizes.files = 64;
    sizes.names = 64;
    sizes.records = 64;
    absl::StatusOr<std::unique_ptr<Books>> books = KernelBooks::LoadOrAdopt(sizes, pins());
    if (!books.ok()) return books.status();
    books_ = *std::move(books);
    return absl::OkStatus();
  }

  template <typename Key, typename Value>
  void PutInto(const std::string& map, const Key& key, const Value& value) {
    absl::StatusOr<base::FileDescriptor> fd = pins().Get("map_" + map);
    ASSERT_TRUE(fd.ok()) << fd.status();
    Put(fd->get(), key, value);
  }

  // Ids of the programs that run.
  std::set<uint32_t> LinkedPrograms() const {
    std::set<uint32_t> ids;
    for (const std::string& name : pins().Names()) {
      if (!absl::StartsWith(name, "link_")) continue;
      absl::StatusOr<base::FileDescriptor> link = pins().Get(name);
      bpf_link_info info = {};
      uint32_t size = sizeof(info);
      EXPECT_TRUE(link.ok() && bpf_obj_get_info_by_fd(link->get(), &info, &size) == 0) << name;
      ids.insert(info.prog_id);
    }
    return ids;
  }

  const Pins& pins() const { return layout_.pins(); }

  PinnedLayout layout_;
  std::unique_ptr<Books> books_;  // destroyed before the folder
};

TEST_F(OwnLayoutTest, ReadsWhatWasWritten) {
  NEED_BPF(Load());
  absl::StatusOr<uint64_t> id = books_->processes().Track(getpid(), false, {});
  ASSERT_TRUE(id.ok()) << id.status();
  const heaptap_tally tally = {{1, 2, 3, 4}, {5, 6, 7, 8}};
  PutInto("tallies", heaptap_tally_key{*id, 70, 9, 0}, tally);
  heaptap_stack stack = {.count = HEAPTAP_MAX_FRAMES, .end = HEAPTAP_STACK_STUCK, .frames = {}};
  for (uint64_t i = 0; i < HEAPTAP_MAX_FRAMES; i++) stack.frames[i] = i * i;
  PutInto("stacks", uint64_t{70}, stack);
  PutInto("losses", heaptap_loss_key{*id, HEAPTAP_LOSS_MISSED_FREE, 0}, heaptap_loss{11, 12});
  heaptap_process ended = {};
  ended.identity.id = 102;
  ended.identity.parent_tgid = 1234;
  PutInto("unnoticed", uint64_t{102}, ended);
  PutInto("tallies", heaptap_tally_key{104, 71, 9, 0}, tally);
  books_->MarkClosed(104);
  books_.reset();

  const absl::Status stopped = StopOtherLayout(pins());
  EXPECT_TRUE(stopped.ok()) << stopped;
  absl::StatusOr<OtherBooks> books = ReadOtherLayout(pins());
  ASSERT_TRUE(books.ok()) << books.status();
  ASSERT_THAT(books->processes, SizeIs(2));
  EXPECT_EQ(books->processes[0].process_id, *id);
  EXPECT_EQ(books->processes[0].tgid, getpid());
  EXPECT_EQ(books->processes[1].process_id, 102);
  EXPECT_EQ(books->processes[1].tgid, 1234);
  EXPECT_TRUE(books->processes[1].ended);
  ASSERT_THAT(books->tallies, SizeIs(1));
  ASSERT_THAT(books->tallies[*id], SizeIs(1));
  const TallyEntry& entry = books->tallies[*id][0];
  EXPECT_EQ(entry.stack_id, 70);
  EXPECT_EQ(entry.tid, 9);
  EXPECT_THAT(Numbers(entry.tally), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  ASSERT_THAT(books->stacks, SizeIs(1));
  EXPECT_EQ(books->stacks[70].end, HEAPTAP_STACK_STUCK);
  EXPECT_EQ(books->stacks[70].frames, std::vector<uint64_t>(std::begin(stack.frames), std::end(stack.frames)));
  EXPECT_EQ(books->losses[*id][HEAPTAP_LOSS_MISSED_FREE].events, 11);
  EXPECT_EQ(books->losses[*id][HEAPTAP_LOSS_MISSED_FREE].weight, 12);
}

TEST_F(OwnLayoutTest, NothingRunsAfterTheStop) {
  NEED_BPF(Load());
  absl::StatusOr<uint64_t> id = books_->processes().Track(getpid(), true, {});
  ASSERT_TRUE(id.ok()) << id.status();
  const std::set<uint32_t> programs = LinkedPrograms();
  // One of them needs a tracepoint that not every kernel has.
  EXPECT_THAT(programs, ::testing::AnyOf(SizeIs(4), SizeIs(5)));
  books_.reset();
  const auto has = [&](pid_t pid) {
    absl::StatusOr<OtherBooks> books = ReadOtherLayout(pins());
    EXPECT_TRUE(books.ok()) << books.status();
    return books.ok() && std::any_of(books->processes.begin(), books->processes.end(),
                                     [&](const OtherProcess& process) { return process.tgid == pid; });
  };
  // The links stay active without a collector.
  std::optional<Child> before(std::in_place);
  const pid_t before_pid = before->pid();
  EXPECT_TRUE(has(before_pid));
  const absl::Status stopped = StopOtherLayout(pins());
  EXPECT_TRUE(stopped.ok()) << stopped;
  for (const uint32_t program : programs) {
    EXPECT_FALSE(base::FileDescriptor(bpf_prog_get_fd_by_id(program)).valid()) << program;
  }
  const Child after;
  EXPECT_FALSE(has(after.pid()));
  before.reset();
  EXPECT_TRUE(has(before_pid));

  std::vector<std::string> left = pins().Names();
  EXPECT_THAT(left, testing::Contains("map_tallies"));
  std::erase_if(left, [](const std::string& name) { return absl::StartsWith(name, "map_"); });
  EXPECT_THAT(left, ElementsAre("whole"));
  // Again, after a collector that was killed halfway.
  EXPECT_TRUE(StopOtherLayout(pins()).ok());
}

TEST_F(OwnLayoutTest, SomebodyHoldsAProgram) {
  NEED_BPF(Load());
  books_.reset();
  absl::StatusOr<base::FileDescriptor> link = pins().Get("link_fork");
  ASSERT_TRUE(link.ok()) << link.status();
  const absl::Status stopped = StopOtherLayout(pins(), absl::Milliseconds(10));
  EXPECT_TRUE(absl::IsDeadlineExceeded(stopped)) << stopped;
  EXPECT_THAT(std::string(stopped.message()), AllOf(HasSubstr(pins().folder()), HasSubstr("10ms")));
}

// A pinned object need not be what its name suggests.
TEST_F(OwnLayoutTest, PinsOfOtherThings) {
  NEED_BPF(Load());
  const auto expect_unreadable = [&](const char* name, int fd) {
    const std::string pin = absl::StrCat("map_", name);
    absl::StatusOr<base::FileDescriptor> good = pins().Get(pin);
    ASSERT_TRUE(good.ok()) << good.status();
    pins().Remove(pin);
    ASSERT_TRUE(pins().Pin(fd, pin).ok());
    const absl::Status status = ReadOtherLayout(pins()).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(pin));
    pins().Remove(pin);
    ASSERT_TRUE(pins().Pin(good->get(), pin).ok());
  };
  absl::StatusOr<base::FileDescriptor> events = pins().Get("map_events");
  absl::StatusOr<base::FileDescriptor> link = pins().Get("link_fork");
  ASSERT_TRUE(events.ok() && link.ok());
  for (const char* name : {"processes", "tallies", "stacks"}) {
    expect_unreadable(name, events->get());
    expect_unreadable(name, link->get());
    for (const Program program : {Program::kSample, Program::kSweep}) {
      expect_unreadable(name, books_->program(program));
    }
  }
  EXPECT_TRUE(ReadOtherLayout(pins()).ok());
}

}  // namespace
}  // namespace heaptap::bpf
