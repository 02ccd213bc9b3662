// SPDX-License-Identifier: Apache-2.0
//
// Tests what the stack walk of the eBPF programs does where the unwind table of a file is missing, in a simulated
// process.
#include <cstdint>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/unwind_simulation.h"

namespace heaptap::harness {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class Tables : public ::testing::Test {
 protected:
  Tables() {
    leaf_ = process_.Function(kPlain);
    caller_ = process_.Function(kPlain, kLibrary);
    start_ = process_.Function(kEnd);
    process_.Words({caller_ + 1, start_ + 1});
  }

  Kernel& kernel() { return process_.kernel; }
  uint32_t StateOf(Place place) {
    const auto* file = kernel().Find<heaptap_file>("files", kKeys[place]);
    return file == nullptr ? ~0u : file->state;
  }
  uint64_t Lost(uint32_t reason) {
    const auto* loss = kernel().Find<heaptap_loss>("losses", heaptap_loss_key{kernel().process.identity.id, reason, 0});
    return loss == nullptr ? 0 : loss->events;
  }

  Simulation process_;
  uint64_t leaf_, caller_, start_;
};

TEST_F(Tables, UnknownFileIsAskedForOnce) {
  process_.Load(kProgram);
  uint64_t ids[2];
  for (uint64_t& id : ids) {
    std::optional<heaptap_stack> stack = process_.Sample(leaf_, &id);
    ASSERT_TRUE(stack.has_value());
    EXPECT_THAT(Frames(*stack), ElementsAre(leaf_, caller_ + 1));
    EXPECT_EQ(stack->end, HEAPTAP_STACK_UNFINISHED);
  }
  EXPECT_NE(ids[0], ids[1]);  // each will be finished for itself
  EXPECT_EQ(StateOf(kLibrary), HEAPTAP_FILE_WANTED);

  std::vector<heaptap_event> events = kernel().TakeEvents();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].kind, HEAPTAP_EVENT_TABLE_WANTED);
  EXPECT_EQ(events[0].tgid, kernel().tgid);
  EXPECT_EQ(events[0].process_id, kernel().process.identity.id);
  EXPECT_EQ(events[0].argument, caller_);  // the call itself
  EXPECT_EQ(memcmp(events[0].memory, &kKeys[kLibrary], sizeof(kKeys[kLibrary])), 0);

  std::vector<RawStack> raw = kernel().TakeRawStacks();
  ASSERT_THAT(raw, SizeIs(2));
  EXPECT_EQ(raw[0].header.stack_id, ids[0]);
  EXPECT_EQ(raw[1].header.stack_id, ids[1]);

  process_.Load(kLibrary);
  std::optional<heaptap_stack> stack = process_.Sample(leaf_);
  EXPECT_EQ(stack->end, HEAPTAP_STACK_WHOLE);
  EXPECT_THAT(kernel().TakeRawStacks(), IsEmpty());
}

TEST_F(Tables, NoRoomForTheQuestion) {
  process_.Load(kProgram);
  kernel().ring("events").bytes = 64;
  EXPECT_EQ(process_.Sample(leaf_)->end, HEAPTAP_STACK_UNFINISHED);
  EXPECT_EQ(StateOf(kLibrary), ~0u);
  EXPECT_EQ(Lost(HEAPTAP_LOSS_EVENTS_FULL), 1);
  // The next one asks.
  kernel().ring("events").bytes = 1 << 20;
  process_.Sample(leaf_);
  EXPECT_EQ(StateOf(kLibrary), HEAPTAP_FILE_WANTED);
  EXPECT_THAT(kernel().TakeEvents(), SizeIs(1));
  EXPECT_THAT(kernel().TakeRawStacks(), SizeIs(2));
}

TEST_F(Tables, AnotherProgramAsksFirst) {
  process_.Load(kProgram);
  kernel().before_update = [&](std::string_view map) {
    if (map == "files") process_.SetState(kLibrary, HEAPTAP_FILE_WANTED);
  };
  EXPECT_EQ(process_.Sample(leaf_)->end, HEAPTAP_STACK_UNFINISHED);
  EXPECT_THAT(kernel().TakeEvents(), IsEmpty());
  EXPECT_EQ(Lost(HEAPTAP_LOSS_FILES_FULL), 0);
}

TEST_F(Tables, NoRoomForAnotherFile) {
  process_.Load(kProgram);
  kernel().map("files").max_entries = 1;
  heaptap_stack stack = *process_.Sample(leaf_);
  EXPECT_THAT(Frames(stack), ElementsAre(leaf_, caller_ + 1));
  EXPECT_EQ(stack.end, HEAPTAP_STACK_WHOLE);  // by its frame pointer, which is 0
  EXPECT_EQ(Lost(HEAPTAP_LOSS_FILES_FULL), 1);
  EXPECT_THAT(kernel().TakeEvents(), IsEmpty());
}

TEST_F(Tables, OutsideMeansRaw) {
  process_.Load();
  process_.SetState(kLibrary, HEAPTAP_FILE_OUTSIDE);
  EXPECT_EQ(process_.Sample(leaf_)->end, HEAPTAP_STACK_UNFINISHED);
  EXPECT_THAT(kernel().TakeRawStacks(), SizeIs(1));
  EXPECT_THAT(kernel().TakeEvents(), IsEmpty());
  EXPECT_EQ(StateOf(kLibrary), HEAPTAP_FILE_OUTSIDE);
}

TEST_F(Tables, WithoutTableMeansFramePointers) {
  process_.Load();
  process_.SetState(kLibrary, HEAPTAP_FILE_WITHOUT_TABLE);
  EXPECT_EQ(process_.Sample(leaf_)->end, HEAPTAP_STACK_WHOLE);
  EXPECT_THAT(kernel().TakeRawStacks(), IsEmpty());
}

TEST_F(Tables, MissingNodeMeansRaw) {
  for (uint32_t i = 0; i < 1000; i++) process_.Function(i % 2 ? kPlain : kEnd, kLibrary);
  process_.Load();
  const uint32_t table = kernel().Find<heaptap_file>("files", kKeys[kLibrary])->table;
  kernel().Remove("rows", heaptap_rows_key{table, 1});
  EXPECT_EQ(process_.Sample(leaf_)->end, HEAPTAP_STACK_UNFINISHED);
  EXPECT_THAT(kernel().TakeRawStacks(), SizeIs(1));
  EXPECT_THAT(kernel().TakeEvents(), IsEmpty());
}

TEST_F(Tables, LockedMappingsMeanRaw) {
  process_.Load();
  kernel().busy = kMappingTries - 1;
  EXPECT_EQ(process_.Sample(leaf_)->end, HEAPTAP_STACK_WHOLE);
  kernel().process.mappings++;
  kernel().busy = kMappingTries;
  heaptap_stack stack = *process_.Sample(leaf_);
  EXPECT_THAT(Frames(stack), ElementsAre(leaf_));
  EXPECT_EQ(stack.end, HEAPTAP_STACK_UNFINISHED);
  EXPECT_EQ(kernel().busy, 0);
}

TEST_F(Tables, VdsoHasAKeyOfItsOwn) {
  process_.Load();
  kernel().mappings.push_back({.start = 0x7fff00000000,
                               .end = 0x7fff00002000,
                               .executable = true,
                               .file = {},
                               .file_offset = 0,
                               .is_vdso = true});
  unwind::FileTable table;
  table.rows = {{0x800, Rule(HEAPTAP_CFA_RSP, 2)}};
  process_.Load({HEAPTAP_VDSO_INODE, 0, 0}, table);
  EXPECT_THAT(Frames(process_.Walk(0x7fff00000900)), ElementsAre(0x7fff00000900, start_ + 1));
}

TEST_F(Tables, LastUseIsNoted) {
  process_.Load();
  kernel().time = 1000;
  process_.Walk(leaf_);
  EXPECT_GT(kernel().Find<heaptap_file>("files", kKeys[kLibrary])->last_used, 1000);
  process_.SetState(kLibrary, HEAPTAP_FILE_OUTSIDE);
  kernel().process.mappings++;
  kernel().time = 5000;
  process_.Walk(leaf_);
  EXPECT_GT(kernel().Find<heaptap_file>("files", kKeys[kLibrary])->last_used, 5000);
}

}  // namespace
}  // namespace heaptap::harness
