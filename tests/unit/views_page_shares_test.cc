// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "userspace/report/root_names.h"
#include "userspace/views/page_shares.h"

namespace heaptap::report {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;

class PageSharesTest : public ::testing::Test {
 protected:
  json Shares(const profile::Profile& profile) {
    const std::string members = PageShares(profile, [this](std::string text) {
      texts_.push_back(std::move(text));
      return static_cast<int64_t>(texts_.size()) - 1;
    });
    return json::parse(absl::StrCat("{\"first\":0", members, "}"));
  }
  std::vector<std::string> texts_;
};

TEST_F(PageSharesTest, OfThreadsSizesAndAges) {
  profile::Profile profile;
  profile.contexts = {
      {.frames = {1}, .threads = {{.tid = 5, .live = {1, 64, 1, 64}, .allocated = {2, 128, 2, 128}}}},
      {.frames = {2},
       .threads = {{.tid = 0, .live = {}, .allocated = {1, 8, 1, 8}}, {.tid = 5, .live = {2, 16, 2, 16}}},
       .blocks = {{.tid = 5, .size = 8, .age = 60, .live = {1, 8, 1, 8}},
                  {.tid = 5, .size = 8, .age = profile::kUnknownAge, .live = {1, 8, 1, 8}}}}};
  profile.thread_names = {{5, "worker\n"}};
  const json shares = Shares(profile);
  EXPECT_THAT(texts_, ElementsAre("thread 5 worker\\012", "threads that have ended"));
  EXPECT_THAT(shares["threads"]["path"], ElementsAre(0, 1, 1));
  EXPECT_THAT(shares["threads"]["thread"], ElementsAre(0, 1, 0));
  EXPECT_THAT(shares["threads"]["live_bytes"], ElementsAre(64, 0, 16));
  EXPECT_THAT(shares["threads"]["allocated_objects"], ElementsAre(2, 1, 0));
  EXPECT_THAT(shares["blocks"]["path"], ElementsAre(1, 1));
  EXPECT_THAT(shares["blocks"]["size"], ElementsAre(8, 8));
  EXPECT_THAT(shares["blocks"]["age"], ElementsAre(60, -1));
  EXPECT_THAT(shares["blocks"]["live_samples"], ElementsAre(1, 1));
}

// People see the mean size of few objects, which is a quotient.
TEST_F(PageSharesTest, FewObjectsHaveTheirMeanSize) {
  constexpr double kSize = 1 << 20;
  const double objects = 1 / (1 - std::exp(-2.0));  // of one sample of twice the interval
  profile::Profile profile = {.period = 1 << 19};
  profile.contexts = {{.threads = {{.tid = 5, .live = {1, 1 << 20, objects, objects * kSize}}}}};
  profile.thread_names = {{5, "x"}};
  const json threads = Shares(profile)["threads"];
  EXPECT_NEAR(threads["live_bytes"][0].get<double>() / threads["live_objects"][0].get<double>(), kSize, 1);
}

// userspace/web/classes.ts has the same texts (tests/web/modules.ts).
TEST(RootNames, OfSizesAndAges) {
  std::vector<std::string> names;
  for (const uint32_t age : profile::kAges) names.push_back(NameOfAge(age));
  EXPECT_THAT(names, ElementsAre("younger than 1 s", "1 s to 10 s", "10 s to 1 min", "1 min to 10 min", "10 min to 1 h",
                                 "1 h to 6 h", "6 h to 1 d", "1 d to 7 d", "older than 7 d"));
  EXPECT_EQ(NameOfAge(profile::kUnknownAge), "of unknown age");
  EXPECT_EQ(NameOfAge(2), "of unknown age");
  EXPECT_EQ(NameOfSize(1024), "blocks of 1024 bytes");
}

TEST_F(PageSharesTest, OfWhatTellsNothingApart) {
  profile::Profile profile;
  profile.contexts = {{.frames = {1}, .threads = {{.tid = 0, .live = {1, 64, 1, 64}}}}};
  EXPECT_EQ(Shares(profile).size(), 1);
}

}  // namespace
}  // namespace heaptap::report
