// SPDX-License-Identifier: Apache-2.0
#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/bpf/file_key.h"
#include "userspace/tables/kernel_tables.h"
#include "userspace/unwind/file_table.h"

namespace heaptap::recording {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr heaptap_file_key kFile = {.inode = 1, .device = 1, .generation = 0};
constexpr heaptap_file_key kOther = {.inode = 2, .device = 1, .generation = 0};

// Maps in memory: the numbers of nodes by table, and the files.
class MapsInMemory final : public bpf::UnwindMaps {
 public:
  std::map<uint32_t, std::set<uint32_t>> nodes = {};
  std::vector<size_t> pieces = {};  // the sizes of all successful calls of AddNodes
  size_t room = SIZE_MAX;           // nodes
  mutable size_t reads = 0;         // calls of ReadFile

  uint32_t NewTable() override { return ++tables_; }
  absl::Status AddNodes(uint32_t table, uint32_t first, absl::Span<const heaptap_rows> added) override {
    if (added.size() > room) return absl::ResourceExhaustedError("no room");
    room -= added.size();
    pieces.push_back(added.size());
    for (uint32_t i = 0; i < added.size(); i++) nodes[table].insert(first + i);
    return absl::OkStatus();
  }
  void RemoveTable(uint32_t table, uint32_t count) override {
    for (uint32_t i = 0; i < count; i++) room += nodes[table].erase(i);
    if (nodes[table].empty()) nodes.erase(table);
  }
  absl::Status SetFile(const heaptap_file_key& key, const heaptap_file& file) override {
    files_[key] = file;
    return absl::OkStatus();
  }
  void RemoveFile(const heaptap_file_key& key) override { files_.erase(key); }
  std::optional<heaptap_file> ReadFile(const heaptap_file_key& key) const override {
    reads++;
    const auto found = files_.find(key);
    return found == files_.end() ? std::nullopt : std::optional(found->second);
  }
  std::vector<heaptap_file_key> FileKeys() const override { return {}; }
  std::map<uint32_t, uint32_t> CountNodes() const override { return {}; }
  bool InvalidateRules(pid_t) override { return true; }
  int raw_stacks_fd() const override { return -1; }
  std::vector<bpf::RawStack> TakeRawStacks() override { return {}; }
  void ReplaceStack(uint64_t, const heaptap_stack&) override {}

 private:
  uint32_t tables_ = 0;
  std::map<heaptap_file_key, heaptap_file, bpf::FileKeyLess> files_ = {};
};

// A table with at least this many nodes, and few more.
SharedTable TableOf(size_t nodes) {
  unwind::FileTable table;
  for (uint32_t i = 0; i < nodes * HEAPTAP_ROWS_PER_NODE; i++) table.rows.push_back({.pc = i, .rule = 1});
  return std::make_shared<const unwind::FileTable>(std::move(table));
}

class KernelTablesTest : public ::testing::Test {
 protected:
  explicit KernelTablesTest(uint64_t budget = uint64_t{1} << 30) : tables_(maps_, budget) {}

  uint32_t State(const heaptap_file_key& key) const { return maps_.ReadFile(key).value_or(heaptap_file{}).state; }

  MapsInMemory maps_;
  KernelTables tables_;
};

TEST_F(KernelTablesTest, ASmallTableIsLoadedAtOnce) {
  tables_.Place(kFile, TableOf(KernelTables::kNodesAtOnce - 1));
  EXPECT_FALSE(tables_.IsLoading());
  EXPECT_EQ(State(kFile), HEAPTAP_FILE_LOADED);
  EXPECT_THAT(maps_.pieces, ElementsAre(KernelTables::kNodesAtOnce));
}

TEST_F(KernelTablesTest, ALargeTableIsLoadedInPiecesAndThenUsed) {
  const SharedTable table = TableOf(3 * KernelTables::kNodesAtOnce);
  tables_.Place(kFile, table);
  EXPECT_TRUE(tables_.IsLoaded(table));
  EXPECT_EQ(tables_.bytes(), KernelBytes(table->rows.size()));
  EXPECT_THAT(maps_.nodes, IsEmpty());
  while (tables_.IsLoading()) {
    EXPECT_EQ(State(kFile), HEAPTAP_FILE_OUTSIDE);
    tables_.LoadSome();
  }
  EXPECT_EQ(State(kFile), HEAPTAP_FILE_LOADED);
  EXPECT_EQ(std::ranges::max(maps_.pieces), KernelTables::kNodesAtOnce);
  const uint32_t number = maps_.ReadFile(kFile)->table;
  EXPECT_THAT(maps_.nodes[number], SizeIs(unwind::CountNodes(table->rows.size())));
}

TEST_F(KernelTablesTest, AFileThatComesWhileItsTableIsBeingLoadedUsesItToo) {
  const SharedTable table = TableOf(2 * KernelTables::kNodesAtOnce);
  tables_.Place(kFile, table);
  tables_.LoadSome();
  tables_.LoadSome();
  tables_.Place(kOther, table);
  EXPECT_EQ(State(kOther), HEAPTAP_FILE_OUTSIDE);
  while (tables_.IsLoading()) tables_.LoadSome();
  EXPECT_EQ(State(kFile), HEAPTAP_FILE_LOADED);
  EXPECT_EQ(State(kOther), HEAPTAP_FILE_LOADED);
  EXPECT_EQ(tables_.bytes(), KernelBytes(table->rows.size()));
}

// At each step: the first one, which is in the kernel in part, and one that waits behind it.
TEST_F(KernelTablesTest, NothingStaysOfATableWhoseFilesAreGoneBeforeItIsLoaded) {
  for (int steps = 0; steps < 4; steps++) {
    tables_.Place(kFile, TableOf(2 * KernelTables::kNodesAtOnce));
    tables_.Place(kOther, TableOf(2 * KernelTables::kNodesAtOnce));
    for (int i = 0; i < steps; i++) tables_.LoadSome();
    tables_.Remove(steps % 2 == 0 ? kFile : kOther);
    tables_.Remove(steps % 2 == 0 ? kOther : kFile);
    EXPECT_FALSE(tables_.IsLoading());
    EXPECT_THAT(maps_.nodes, IsEmpty());
    EXPECT_EQ(tables_.bytes(), 0);
  }
}

TEST_F(KernelTablesTest, ATableForWhichTheKernelHasNoRoomIsTriedAgain) {
  const SharedTable table = TableOf(2 * KernelTables::kNodesAtOnce);
  maps_.room = KernelTables::kNodesAtOnce;
  tables_.Place(kFile, table);
  while (tables_.IsLoading()) tables_.LoadSome();
  EXPECT_EQ(State(kFile), HEAPTAP_FILE_OUTSIDE);
  EXPECT_THAT(maps_.nodes, IsEmpty());
  EXPECT_EQ(maps_.room, KernelTables::kNodesAtOnce);
  EXPECT_EQ(tables_.bytes(), 0);
  maps_.room = SIZE_MAX;
  heaptap_file used = *maps_.ReadFile(kFile);
  used.last_used = base::Now().nanoseconds();
  ASSERT_TRUE(maps_.SetFile(kFile, used).ok());
  tables_.Balance(base::Instant() + absl::Seconds(10));
  while (tables_.IsLoading()) tables_.LoadSome();
  EXPECT_EQ(State(kFile), HEAPTAP_FILE_LOADED);
}

constexpr uid_t kGreedy = 1000;
constexpr uid_t kModest = 1001;

heaptap_file_key Key(uint64_t inode) { return {.inode = inode, .device = 2, .generation = 0}; }

// Tables of one node each.
constexpr uint64_t kBudget = 8;

class CrowdedTablesTest : public KernelTablesTest {
 protected:
  CrowdedTablesTest() : KernelTablesTest(kBudget * 4096) {}

  // A table that is in use from now on.
  void Place(uint64_t inode, uid_t owner) {
    tables_.Place(Key(inode), TableOf(1), owner);
    heaptap_file file = *maps_.ReadFile(Key(inode));
    file.last_used = base::Now().nanoseconds() + inode;
    ASSERT_TRUE(maps_.SetFile(Key(inode), file).ok());
  }
  std::vector<uint64_t> Loaded(uint64_t first, uint64_t last) const {
    std::vector<uint64_t> loaded;
    for (uint64_t inode = first; inode <= last; inode++) {
      if (State(Key(inode)) == HEAPTAP_FILE_LOADED) loaded.push_back(inode);
    }
    return loaded;
  }
};

TEST_F(CrowdedTablesTest, AUserWhoseTablesFillTheBudgetMakesRoomForOthersUpToAShare) {
  for (uint64_t inode = 1; inode <= kBudget; inode++) Place(inode, kGreedy);
  ASSERT_EQ(tables_.bytes(), kBudget * 4096);
  // The oldest tables leave. A user whose tables exceed the share displaces no table.
  for (uint64_t inode = 11; inode <= 14; inode++) Place(inode, kModest);
  EXPECT_THAT(Loaded(1, 14), ElementsAre(3, 4, 5, 6, 7, 8, 11, 12));
  Place(15, kGreedy);
  EXPECT_THAT(Loaded(15, 15), IsEmpty());
  Place(16, base::kRoot);
  EXPECT_THAT(Loaded(1, 16), ElementsAre(4, 5, 6, 7, 8, 11, 12, 16));
}

TEST_F(CrowdedTablesTest, NobodyDisplacesTheTablesOfRootThatAreInUse) {
  for (uint64_t inode = 1; inode <= kBudget; inode++) Place(inode, base::kRoot);
  Place(11, kModest);
  EXPECT_THAT(Loaded(11, 11), IsEmpty());
}

TEST_F(CrowdedTablesTest, ATableOfFilesOfSeveralOwnersCountsForNone) {
  const SharedTable table = TableOf(kBudget - 1);
  tables_.Place(Key(1), table, kGreedy);
  tables_.Place(Key(2), table, kModest);
  for (const uint64_t inode : {1, 2}) {
    heaptap_file file = *maps_.ReadFile(Key(inode));
    file.last_used = base::Now().nanoseconds();
    ASSERT_TRUE(maps_.SetFile(Key(inode), file).ok());
  }
  Place(3, kModest);
  EXPECT_THAT(Loaded(1, 3), ElementsAre(1, 2));
}

TEST_F(CrowdedTablesTest, WhereNothingCanLeaveFilesAreNotSearchedAgainUntilBalance) {
  for (uint64_t inode = 1; inode <= kBudget; inode++) Place(inode, base::kRoot);
  Place(11, kModest);
  const size_t reads = maps_.reads;
  tables_.Place(Key(12), TableOf(1), kModest);
  EXPECT_LE(maps_.reads - reads, 2);
}

}  // namespace
}  // namespace heaptap::recording
