// SPDX-License-Identifier: Apache-2.0
#include "allocator/sampling/told_rate.h"

#include <stdint.h>

#include "allocator/core/control.h"
#include "allocator/sampling/probes.h"
#include "gtest/gtest.h"
#include "heaptap/contract.h"

namespace heaptap {
namespace {

class ToldRate : public ::testing::Test {
 protected:
  ToldRate() : before_(::heaptap_control) {
    ::heaptap_control.lg_sample = 17;
    ::heaptap_control.collector_lg_sample = HEAPTAP_NO_RATE;
    ::heaptap_control.collector_pid = 0;
  }
  ~ToldRate() override {
    for (uint16_t& semaphore : heaptap_semaphore_rate) semaphore = 0;
    FollowToldRate();
    ::heaptap_control.lg_sample = before_.lg_sample;
    ::heaptap_control.collector_lg_sample = before_.collector_lg_sample;
    ::heaptap_control.collector_pid = before_.collector_pid;
  }
  static void Tell(uint32_t lg) { heaptap_semaphore_rate[HEAPTAP_RATE_SITE(lg)]++; }
  // As the process does when it starts.
  static void Follow() { ::heaptap_control.collector_lg_sample = FollowToldRate(); }
  const struct heaptap_control before_;
};

TEST_F(ToldRate, IsTheLeast) {
  EXPECT_EQ(FollowToldRate(), HEAPTAP_NO_RATE);
  Tell(HEAPTAP_MAX_LG_SAMPLE);
  EXPECT_EQ(FollowToldRate(), HEAPTAP_MAX_LG_SAMPLE);
  Tell(0);
  EXPECT_EQ(FollowToldRate(), 0u);
}

// bpftrace attaches to it for usdt:libheaptap.so:*.
TEST_F(ToldRate, TheSiteOfTheNoteTellsNothing) {
  heaptap_semaphore_rate[0] = 1;
  EXPECT_EQ(FollowToldRate(), HEAPTAP_NO_RATE);
}

TEST_F(ToldRate, EndsWithoutACollector) {
  Tell(3);
  Follow();
  EXPECT_EQ(control::ChosenLgInterval(), 3u);
  DropUnconfirmedRate();
  EXPECT_EQ(control::ChosenLgInterval(), 17u);
}

TEST_F(ToldRate, StaysWithACollector) {
  Tell(3);
  Follow();
  ::heaptap_control.collector_pid = 1;
  DropUnconfirmedRate();
  EXPECT_EQ(control::ChosenLgInterval(), 3u);
}

TEST_F(ToldRate, AnIntervalThatWasSetMeanwhileStays) {
  Tell(3);
  Follow();
  ::heaptap_control.collector_lg_sample = 5;
  DropUnconfirmedRate();
  EXPECT_EQ(control::ChosenLgInterval(), 5u);
  // The same if nothing was ever told.
  heaptap_semaphore_rate[HEAPTAP_RATE_SITE(3)] = 0;
  Follow();
  ::heaptap_control.collector_lg_sample = 5;
  DropUnconfirmedRate();
  EXPECT_EQ(control::ChosenLgInterval(), 5u);
}

}  // namespace
}  // namespace heaptap
