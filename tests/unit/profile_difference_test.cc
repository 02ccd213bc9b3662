// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/large_profile.h"
#include "userspace/profile/difference.h"

namespace heaptap::profile {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

Profile WithContexts(std::vector<Context> contexts) { return {.pid = 1, .contexts = std::move(contexts)}; }

TEST(Difference, OfEqualProfilesIsEmpty) {
  Profile profile = WithContexts({{.frames = {1, 2}, .threads = {{1, {2, 20, 3, 30}, {4, 40, 5, 50}}}}});
  EXPECT_THAT(Difference(profile, profile).contexts, IsEmpty());
  EXPECT_THAT(Difference({}, {}).contexts, IsEmpty());
}

TEST(Difference, UnchangedPathsIfTheyAreWanted) {
  const Profile profile =
      WithContexts({{.frames = {1, 2}, .truncated = true, .threads = {{1, {2, 20, 3, 30}, {4, 40, 5, 50}}}}});
  const Profile difference = Difference(profile, profile, Unchanged::kKeep);
  ASSERT_THAT(difference.contexts, SizeIs(1));
  EXPECT_THAT(difference.contexts[0].frames, ElementsAre(1, 2));
  EXPECT_TRUE(difference.contexts[0].truncated);
  EXPECT_THAT(difference.contexts[0].threads, IsEmpty());
}

TEST(Difference, SubtractsByFramesAndThread) {
  Profile before = WithContexts(
      {{.frames = {1, 2}, .threads = {{1, {2, 20, 3, 30}, {4, 40, 5, 50}}, {2, {1, 1, 1, 1}, {1, 1, 1, 1}}}},
       {.frames = {1}, .threads = {{1, {1, 1, 1, 1}, {1, 1, 1, 1}}}}});
  Profile after = WithContexts(
      {{.frames = {1}, .threads = {{1, {1, 1, 1, 1}, {1, 1, 1, 1}}, {3, {7, 7, 7, 7}, {8, 8, 8, 8}}}},
       {.frames = {1, 2}, .threads = {{1, {5, 50, 7, 70}, {9, 90, 11, 110}}, {2, {1, 1, 1, 1}, {1, 1, 1, 1}}}}});
  Profile difference = Difference(after, before);
  ASSERT_EQ(difference.contexts.size(), 2u);
  EXPECT_THAT(difference.contexts[0].frames, ElementsAre(1));
  EXPECT_THAT(difference.contexts[0].threads, ElementsAre(ThreadShare{3, {7, 7, 7, 7}, {8, 8, 8, 8}}));
  EXPECT_THAT(difference.contexts[1].frames, ElementsAre(1, 2));
  EXPECT_THAT(difference.contexts[1].threads, ElementsAre(ThreadShare{1, {3, 30, 4, 40}, {5, 50, 6, 60}}));
}

TEST(Difference, APathThatWasCutOnceCountsAsCut) {
  const auto profile = [](bool truncated, double bytes) {
    return WithContexts(
        {{.frames = {1}, .truncated = truncated, .threads = {{1, {1, 8, 1, bytes}, {1, 8, 1, bytes}}}}});
  };
  EXPECT_TRUE(Difference(profile(false, 9), profile(true, 8)).contexts[0].truncated);
  EXPECT_TRUE(Difference(profile(true, 9), profile(false, 8)).contexts[0].truncated);
  EXPECT_FALSE(Difference(profile(false, 9), profile(false, 8)).contexts[0].truncated);
}

TEST(Difference, LiveMayShrinkAllocatedDoesNot) {
  Profile before = WithContexts({{.frames = {1}, .threads = {{1, {10, 100, 10, 100}, {10, 100, 10, 100}}}}});
  Profile after = WithContexts({{.frames = {1}, .threads = {{1, {4, 40, 4, 40}, {12, 120, 12, 120}}}}});
  EXPECT_THAT(Difference(after, before).contexts[0].threads,
              ElementsAre(ThreadShare{1, {0, 0, -6, -60}, {2, 20, 2, 20}}));
}

TEST(Difference, WhatIsGoneCountsAsFreed) {
  Profile before = WithContexts({{.frames = {2}, .truncated = true, .threads = {{1, {1, 9, 1, 9}, {2, 18, 2, 18}}}},
                                 {.frames = {1}, .threads = {{1, {1, 8, 1, 8}, {1, 8, 1, 8}}}}});
  Profile difference = Difference(WithContexts({}), before);
  ASSERT_EQ(difference.contexts.size(), 2u);
  EXPECT_THAT(difference.contexts[0].frames, ElementsAre(2));
  EXPECT_TRUE(difference.contexts[0].truncated);
  EXPECT_THAT(difference.contexts[0].threads, ElementsAre(ThreadShare{1, {0, 0, -1, -9}, {}}));
  EXPECT_EQ(difference.Live().bytes, -17);
}

TEST(Difference, NewBooksCountAsTheyAre) {
  Profile before = WithContexts({{.frames = {1}, .threads = {{1, {9, 90, 9, 90}, {20, 200, 20, 200}}}}});
  Profile after = WithContexts({{.frames = {1}, .threads = {{1, {3, 30, 3, 30}, {5, 50, 5, 50}}}}});
  EXPECT_THAT(Difference(after, before).contexts[0].threads,
              ElementsAre(ThreadShare{1, {0, 0, -6, -60}, {5, 50, 5, 50}}));
}

TEST(Difference, ThreadsMappingsAndStackEnds) {
  Profile before = {.mappings = {{.start = 0x1000, .end = 0x2000, .path = "/old"},
                                 {.start = 0x5000, .end = 0x7000, .path = "/unloaded"}},
                    .thread_names = {{1, "old"}, {2, "ended"}}};
  Profile after = {.pid = 9,
                   .period = 4096,
                   .mappings = {{.start = 0x6000, .end = 0x7000, .path = "/new"}},
                   .thread_names = {{1, "new"}},
                   .warnings = {"2 samples lost"}};
  before.stack_ends.samples[HEAPTAP_STACK_WHOLE] = 5;
  after.stack_ends.samples[HEAPTAP_STACK_WHOLE] = 12;
  after.stack_ends.without_stack = 3;
  Profile difference = Difference(after, before);
  EXPECT_EQ(difference.pid, 9);
  EXPECT_EQ(difference.period, 4096u);
  EXPECT_THAT(difference.thread_names, ElementsAre(Pair(1, "new"), Pair(2, "ended")));
  EXPECT_THAT(difference.mappings, ElementsAre(elf::Mapping{.start = 0x1000, .end = 0x2000, .path = "/old"},
                                               elf::Mapping{.start = 0x5000, .end = 0x6000, .path = "/unloaded"},
                                               elf::Mapping{.start = 0x6000, .end = 0x7000, .path = "/new"}));
  EXPECT_THAT(difference.warnings, ElementsAre("2 samples lost"));
  EXPECT_EQ(difference.stack_ends.samples[HEAPTAP_STACK_WHOLE], 7u);
  EXPECT_EQ(difference.stack_ends.without_stack, 3u);
}

TEST(Difference, OfLargeProfiles) {
  std::array<Profile, 2> after = LargeProfiles();
  for (Profile& profile : after) {
    for (Context& context : profile.contexts) context.threads[1].allocated.objects += 1;
  }
  ExpectLinear([&](size_t which) {
    EXPECT_EQ(Difference(after[which], LargeProfiles()[which]).Allocated().objects, after[which].contexts.size());
  });
}

}  // namespace
}  // namespace heaptap::profile
