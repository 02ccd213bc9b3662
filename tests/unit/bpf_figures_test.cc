// SPDX-License-Identifier: Apache-2.0
//
// Figures of a process (bpf/books.bpf.h) when it begins new books in the middle of a program; control blocks.
#include <string_view>

#include "gtest/gtest.h"
#include "heaptap/contract.h"
#include "tests/unit/bpf_harness.h"

namespace heaptap::harness {
namespace {

constexpr uint32_t kMaxLive = 4;

class BpfFigures : public ::testing::Test {
 protected:
  BpfFigures() {
    kernel_.process.flags = HEAPTAP_PROCESS_FIGURES;
    kernel_.process.limits.max_live = kMaxLive;
  }

  heaptap_loss_reason Insert(uint64_t address) {
    host_context context = kernel_.Context({});
    const heaptap_live_key key = {kernel_.process.identity.id, address};
    const heaptap_live object = {
        .serial = 1, .size = 100, .weight = 1000, .stack_id = 1, .time = 0, .tid = 1, .record = 0};
    const heaptap_loss_reason loss = host_insert_live(&context, &key, &object);
    if (loss == HEAPTAP_NO_LOSS) kernel_.process.figures.live_objects++;
    return loss;
  }
  int Remove(uint64_t process_id, uint64_t address) {
    host_context context = kernel_.Context({});
    const heaptap_live_key key = {process_id, address};
    return host_remove_live(&context, &key);
  }
  // As the program on heaptap:dump does it.
  void Reset() {
    kernel_.process.identity.id += 2;
    kernel_.process.figures = {};
  }

  Kernel kernel_;
};

TEST_F(BpfFigures, AFreeThatMeetsAResetTakesNothingFromTheNewFigures) {
  ASSERT_EQ(Insert(0x1000), HEAPTAP_NO_LOSS);
  kernel_.before_lookup = [&](std::string_view map) {
    if (map != "tallies") return;
    kernel_.before_lookup = nullptr;
    Reset();
  };
  const uint64_t before = kernel_.process.identity.id;
  EXPECT_EQ(Remove(before, 0x1000), 0);
  EXPECT_EQ(kernel_.process.identity.id, before + 2);
  EXPECT_EQ(kernel_.process.figures.live_objects, 0);
  EXPECT_EQ(kernel_.process.figures.live_weight, 0);
  EXPECT_EQ(Insert(0x2000), HEAPTAP_NO_LOSS);
}

// The process can change between the check of the id and the subtraction.
TEST_F(BpfFigures, CountsBelowZeroAreNoFullShare) {
  kernel_.process.figures.live_objects = ~uint64_t{0};
  for (uint64_t i = 0; i <= kMaxLive; i++) EXPECT_EQ(Insert(0x1000 + 16 * i), HEAPTAP_NO_LOSS);
  EXPECT_EQ(Insert(0x9000), HEAPTAP_LOSS_LIVE_SHARE);
}

// The program that writes control blocks cannot be loaded everywhere, so its condition is tested here.
TEST(BpfControlHead, OtherVersionsAndSizesAreLeftAlone) {
  heaptap_control ours = {};
  ours.magic = HEAPTAP_CONTROL_MAGIC;
  ours.version = HEAPTAP_CONTROL_VERSION;
  ours.size = sizeof(ours);
  EXPECT_TRUE(host_is_control_block(&ours));
  for (const uint32_t version : {HEAPTAP_CONTROL_VERSION - 1, HEAPTAP_CONTROL_VERSION + 1}) {
    heaptap_control other = ours;
    other.version = version;
    EXPECT_FALSE(host_is_control_block(&other)) << version;
  }
  heaptap_control other = ours;
  other.size--;
  EXPECT_FALSE(host_is_control_block(&other));
  other = ours;
  other.magic = 0;
  EXPECT_FALSE(host_is_control_block(&other));
}

}  // namespace
}  // namespace heaptap::harness
