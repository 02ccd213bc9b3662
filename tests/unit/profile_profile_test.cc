// SPDX-License-Identifier: Apache-2.0
#include "userspace/profile/profile.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/profile/contexts.h"

namespace heaptap::profile {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kOne = uint64_t{1} << HEAPTAP_OBJECT_FRACTION_BITS;

// `allocated` objects of 10 bytes, each standing for 2, `freed` of them freed.
heaptap_tally Tally(uint64_t allocated, uint64_t freed) {
  auto count = [](uint64_t n) -> heaptap_count { return {n, n * 10, n * 20, n * 2 * kOne}; };
  return {.allocated = count(allocated), .freed = count(freed)};
}

Estimate Of(uint64_t n) { return {n, n * 10, static_cast<double>(n) * 2, static_cast<double>(n) * 20}; }

TEST(ContextBuilder, OneContextForTheSameFrames) {
  ContextBuilder builder;
  builder.Add({2, 3}, false, 7, Tally(4, 1));
  builder.Add({1, 3}, false, 7, Tally(1, 0));
  // Another way through the allocator, the same way through the program.
  builder.Add({2, 3}, true, 7, Tally(2, 2));
  builder.Add({2, 3}, false, 5, Tally(6, 0));
  std::vector<Context> contexts = builder.Build();
  ASSERT_THAT(contexts, SizeIs(2));
  EXPECT_THAT(contexts[0].frames, ElementsAre(2, 3));
  EXPECT_TRUE(contexts[0].truncated);
  EXPECT_THAT(contexts[0].threads, ElementsAre(ThreadShare{5, Of(6), Of(6)}, ThreadShare{7, Of(3), Of(6)}));
  EXPECT_THAT(contexts[1].frames, ElementsAre(1, 3));
  EXPECT_FALSE(contexts[1].truncated);
  EXPECT_THAT(contexts[1].threads, ElementsAre(ThreadShare{7, Of(1), Of(1)}));
}

TEST(ContextBuilder, IsEmptyAfterBuild) {
  ContextBuilder builder;
  EXPECT_THAT(builder.Build(), IsEmpty());
  builder.Add({}, false, 1, Tally(1, 0));
  EXPECT_THAT(builder.Build(), SizeIs(1));
  EXPECT_THAT(builder.Build(), IsEmpty());
  builder.Add({}, false, 1, Tally(1, 0));
  EXPECT_THAT(builder.Build(), SizeIs(1));
}

class ProfileTest : public ::testing::Test {
 protected:
  ProfileTest() {
    ContextBuilder builder;
    builder.Add({1}, false, 9, Tally(4, 1));
    builder.Add({1}, false, 8, Tally(5, 0));
    builder.Add({2}, false, 9, Tally(6, 6));
    profile_.contexts = builder.Build();
  }

  Profile profile_;
};

TEST_F(ProfileTest, Totals) {
  EXPECT_EQ(profile_.contexts[0].Live(), Of(8));
  EXPECT_EQ(profile_.contexts[0].Allocated(), Of(9));
  EXPECT_EQ(profile_.Live(), Of(8));
  EXPECT_EQ(profile_.Allocated(), Of(15));
  EXPECT_THAT(profile_.Threads(), ElementsAre(ThreadShare{8, Of(5), Of(5)}, ThreadShare{9, Of(3), Of(10)}));
}

TEST_F(ProfileTest, LeaksAreWhatLives) {
  LeakSummary leaks = profile_.Leaks();
  EXPECT_EQ(leaks.bytes, 160u);
  EXPECT_EQ(leaks.objects, 16u);
  EXPECT_EQ(leaks.contexts, 1u);
}

TEST(Profile, LeaksAreRoundedOnce) {
  Profile profile;
  for (uint64_t frame = 1; frame <= 3; ++frame) {
    profile.contexts.push_back({.frames = {frame}, .threads = {{.tid = 1, .live = {1, 1, 1.3, 10.4}}}});
  }
  LeakSummary leaks = profile.Leaks();
  EXPECT_EQ(leaks.bytes, 31u);
  EXPECT_EQ(leaks.objects, 4u);
  EXPECT_EQ(leaks.contexts, 3u);
}

TEST(Profile, Empty) {
  Profile profile;
  EXPECT_TRUE(profile.Live().IsZero());
  EXPECT_THAT(profile.Threads(), IsEmpty());
  EXPECT_EQ(profile.Leaks().bytes, 0u);
  EXPECT_EQ(profile.Leaks().contexts, 0u);
}

}  // namespace
}  // namespace heaptap::profile
