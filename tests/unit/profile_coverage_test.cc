// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <numeric>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/profile/ages.h"
#include "userspace/profile/coverage.h"

namespace heaptap::profile {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

heaptap_statistics Statistics(uint64_t active, uint64_t dirty, uint64_t metadata) {
  heaptap_statistics statistics = {};
  statistics.active = active;
  statistics.dirty = dirty;
  statistics.metadata = metadata;
  return statistics;
}

constexpr ResidentBytes kResident = {.anonymous = 1000, .files = 300, .shared = 50, .stacks = 100};

std::map<std::string, uint64_t> Parts(const ResidentBytes& resident, const heaptap_statistics* statistics,
                                      double live) {
  std::map<std::string, uint64_t> parts;
  for (const CoveragePart& part : Cover(resident, statistics, live)) parts[part.name] = part.bytes;
  return parts;
}

TEST(Coverage, EveryPart) {
  const heaptap_statistics statistics = Statistics(600, 120, 40);
  EXPECT_THAT(
      Parts(kResident, &statistics, 500),
      ElementsAre(Pair("allocator metadata", 40), Pair("cached", 120), Pair("files", 300), Pair("fragmentation", 100),
                  Pair("live", 500), Pair("other mappings", 140 + 50), Pair("stacks", 100)));
}

// Of an allocator that says nothing of itself, such as the host of a guest.
TEST(Coverage, WithoutStatistics) {
  EXPECT_THAT(Parts(kResident, nullptr, 500), ElementsAre(Pair("files", 300), Pair("live", 500),
                                                          Pair("other mappings", 400 + 50), Pair("stacks", 100)));
}

// A block that the program has not written to is live, but not resident. The sum is the resident memory, even if
// the allocator reports hostile numbers.
TEST(Coverage, TheSumIsWhatIsResident) {
  const heaptap_statistics hostile = Statistics(UINT64_MAX, UINT64_MAX - 1, UINT64_MAX);
  const heaptap_statistics untouched = Statistics(5000, 10, 10);
  for (const heaptap_statistics* statistics : {&hostile, &untouched, static_cast<const heaptap_statistics*>(nullptr)}) {
    for (const double live : {0.0, 4000.0, 1e30}) {
      const auto parts = Parts(kResident, statistics, live);
      EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), uint64_t{0},
                                [](uint64_t sum, const auto& part) { return sum + part.second; }),
                1350);
    }
  }
}

TEST(Ages, Ranges) {
  EXPECT_EQ(AgeOf(0), 0);
  EXPECT_EQ(AgeOf(1), 1);
  EXPECT_EQ(AgeOf(9), 1);
  EXPECT_EQ(AgeOf(59), 10);
  EXPECT_EQ(AgeOf(604799), 86400);
  EXPECT_EQ(AgeOf(UINT64_MAX), 604800);
}

}  // namespace
}  // namespace heaptap::profile
