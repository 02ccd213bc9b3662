// SPDX-License-Identifier: Apache-2.0
//
// Tests what the stack walk of the eBPF programs remembers of rules and mappings, in a simulated process.
#include <cstdint>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/unwind_simulation.h"

namespace heaptap::harness {
namespace {

using ::testing::ElementsAre;

struct CachedRule {
  uint64_t check;
  uint64_t rule;
};

class RuleCache : public ::testing::Test {
 protected:
  RuleCache() {
    leaf_ = process_.Function(kPlain);
    caller_ = process_.Function(Rule(HEAPTAP_CFA_RSP, 3));
    start_ = process_.Function(kEnd);
    process_.Load();
    process_.Words({caller_ + 1, 0, 0, start_ + 1});
    process_.kernel.before_lookup = [this](std::string_view map) { rows_ += map == "rows"; };
  }

  // What a walk had to look for.
  struct Searches {
    uint64_t mappings = 0;
    uint64_t rows = 0;
    bool operator==(const Searches&) const = default;
  };
  Searches Walk() {
    const uint64_t mappings = process_.kernel.calls.find_mapping;
    const uint64_t rows = rows_;
    process_.registers.rbp()++;  // else the stack of the latest walk is taken again
    heaptap_stack stack = process_.Walk(leaf_);
    EXPECT_THAT(Frames(stack), ElementsAre(leaf_, caller_ + 1, start_ + 1));
    EXPECT_EQ(stack.end, HEAPTAP_STACK_WHOLE);
    return {process_.kernel.calls.find_mapping - mappings, rows_ - rows};
  }
  template <typename Change>
  void ChangeEntries(const char* map, Change change) {
    process_.kernel.map(map).ForEach<CachedRule>(change);
  }

  Simulation process_;
  uint64_t leaf_, caller_, start_;
  uint64_t rows_ = 0;
};

TEST_F(RuleCache, SecondWalkFindsAll) {
  EXPECT_EQ(Walk(), (Searches{.mappings = 1, .rows = 3}));
  EXPECT_EQ(Walk(), Searches());
  EXPECT_EQ(Walk(), Searches());
}

TEST_F(RuleCache, OnlyMappingsAreLookedForAgainWhenTheyChange) {
  Walk();
  process_.kernel.lock_sequence++;
  EXPECT_EQ(Walk(), Searches{.mappings = 1});
  EXPECT_EQ(Walk(), Searches());
  EXPECT_EQ(process_.kernel.process.mappings, 2);  // the first walk counted one
  process_.kernel.process.mappings++;              // as the program `invalidate_rules` does
  EXPECT_EQ(Walk(), Searches{.mappings = 1});
  EXPECT_EQ(Walk(), Searches());
}

TEST_F(RuleCache, ProcessesShareRowsAlone) {
  Walk();
  const heaptap_process first = process_.kernel.process;
  process_.kernel.process.identity.id += 2;
  EXPECT_EQ(Walk(), Searches{.mappings = 1});
  process_.kernel.process = first;
  EXPECT_EQ(Walk(), Searches());
}

// The same code at another place, and other code at its place.
TEST_F(RuleCache, CodeThatMovesTakesItsRowsAlong) {
  constexpr uint64_t kFarther = 0x100000;
  Walk();
  Mapping& mapping = process_.kernel.mappings[kProgram];
  mapping.start += kFarther;
  mapping.end += kFarther;
  process_.kernel.lock_sequence++;
  const uint64_t rows = rows_;
  process_.kernel.WriteWord(process_.registers.rsp(), caller_ + kFarther + 1);
  process_.kernel.WriteWord(process_.registers.rsp() + 24, start_ + kFarther + 1);
  const heaptap_stack stack = process_.Walk(leaf_ + kFarther);
  EXPECT_THAT(Frames(stack), ElementsAre(leaf_ + kFarther, caller_ + kFarther + 1, start_ + kFarther + 1));
  EXPECT_EQ(stack.end, HEAPTAP_STACK_WHOLE);
  EXPECT_EQ(rows_, rows);
  EXPECT_EQ(process_.Walk(leaf_).end, HEAPTAP_STACK_NO_CODE);
}

TEST_F(RuleCache, ANewTableOfAFileHasItsOwnRows) {
  Walk();
  process_.tables[kProgram].rows[0].rule = Rule(HEAPTAP_CFA_RSP, 4);  // of the leaf
  process_.Load();
  process_.kernel.process.mappings++;
  EXPECT_THAT(Frames(process_.Walk(leaf_)), ElementsAre(leaf_, start_ + 1));
}

// More files than a walk knows mappings of, each with its own rule at the same offset.
TEST_F(RuleCache, StacksThroughManyFiles) {
  constexpr int kFiles = 7;
  std::vector<uint64_t> frames = {leaf_};
  process_.MoveTo(process_.registers.rsp());
  for (int i = 0; i < kFiles; i++) {
    const heaptap_file_key key = {.inode = 1000u + i, .device = 0x800001, .generation = 0};
    const uint64_t start = 0x7e0000000000 + i * 0x10000;
    process_.kernel.mappings.push_back({.start = start, .end = start + 0x1000, .executable = true, .file = key});
    unwind::FileTable table;
    table.rows.push_back({.pc = 0, .rule = Rule(HEAPTAP_CFA_RSP, 2 + i)});
    process_.Load(key, table);
    process_.Words({start + 9});  // the return address, and the frame
    for (int word = 0; word <= i; word++) process_.Words({0});
    frames.push_back(start + 9);
  }
  process_.Words({start_ + 1});
  frames.push_back(start_ + 1);
  for (int i = 0; i < 3; i++) {
    const heaptap_stack stack = process_.Walk(leaf_);
    EXPECT_EQ(Frames(stack), frames);
    EXPECT_EQ(stack.end, HEAPTAP_STACK_WHOLE);
    process_.kernel.lock_sequence++;
  }
}

TEST_F(RuleCache, TornEntriesDoNotCheck) {
  const auto other_rule = [](CachedRule& entry) { entry.rule ^= 0x10000; };
  const auto other_check = [](CachedRule& entry) { entry.check ^= 0x10000; };
  const auto no_check = [](CachedRule& entry) { entry.check = 0; };
  Walk();
  for (const std::function<void(CachedRule&)>& tear :
       {std::function<void(CachedRule&)>(other_rule), std::function<void(CachedRule&)>(other_check),
        std::function<void(CachedRule&)>(no_check)}) {
    ChangeEntries("rule_cache", tear);
    EXPECT_EQ(Walk(), Searches());  // the rows are known
    ChangeEntries("rule_cache", tear);
    ChangeEntries("row_cache", tear);
    EXPECT_EQ(Walk(), Searches{.rows = 3});
  }
  EXPECT_EQ(Walk(), Searches());
}

TEST_F(RuleCache, KeepsOnlyRules) {
  process_.kernel.FindRule(0x1000);  // no code
  process_.SetState(kProgram, HEAPTAP_FILE_OUTSIDE);
  process_.kernel.FindRule(leaf_);
  for (const char* map : {"rule_cache", "row_cache"}) {
    ChangeEntries(map, [](const CachedRule& entry) {
      EXPECT_EQ(entry.check, 0);
      EXPECT_EQ(entry.rule, 0);
    });
  }
  process_.Load();
  EXPECT_EQ(Walk(), Searches{.rows = 3});
}

// The collector unloads a table while a program uses it, and reuses its memory for another one.
TEST_F(RuleCache, KeepsNothingOfATableThatIsUnloaded) {
  bool unload = true;
  process_.kernel.before_lookup = [&](std::string_view map) {
    if (map != "rows" || !std::exchange(unload, false)) return;
    process_.SetState(kProgram, HEAPTAP_FILE_OUTSIDE);
    process_.kernel.map("rows").ForEach<heaptap_rows>([](heaptap_rows& node) {
      for (heaptap_row& row : node.rows) row.rule = Rule(HEAPTAP_CFA_RSP, 2);
    });
  };
  EXPECT_EQ(process_.Walk(leaf_).end, HEAPTAP_STACK_UNFINISHED);
  process_.kernel.before_lookup = nullptr;
  for (const char* map : {"rule_cache", "row_cache"})
    ChangeEntries(map, [](const CachedRule& entry) { EXPECT_EQ(entry.rule, 0); });
  process_.Load();
  Walk();
}

}  // namespace
}  // namespace heaptap::harness
