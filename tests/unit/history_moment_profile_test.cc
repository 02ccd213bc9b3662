// SPDX-License-Identifier: Apache-2.0
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/history/moment_profile.h"
#include "userspace/profile/difference.h"

namespace heaptap::history {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

TimelineFrame Frame(const std::string& function, uint32_t line, const std::string& library, uint64_t offset,
                    bool is_inlined = false) {
  return {
      .source = {.function = function, .line = line}, .library = library, .offset = offset, .is_inlined = is_inlined};
}

// A moment with one path, which has an inlined function.
Timeline Moment(const std::string& program, uint64_t offset, uint32_t line, uint64_t bytes) {
  Timeline moment;
  moment.points.push_back({.lg_sample = 19, .rows = {{5, {bytes, 2, 1}}}});
  moment.paths.push_back({.id = 5,
                          .frames = {Frame("inner", line, program, offset, true), Frame("outer", line, program, offset),
                                     Frame("", 0, "/lib/libc.so.6", 99)}});
  return moment;
}

TEST(MomentProfilesTest, FramesHaveTheirNames) {
  MomentProfiles profiles;
  const MomentProfile made = profiles.Make(Moment("/bin/server", 16, 7, 1000));
  ASSERT_THAT(made.profile.contexts, SizeIs(1));
  const std::vector<uint64_t>& frames = made.profile.contexts[0].frames;
  ASSERT_THAT(frames, SizeIs(2)) << "an inlined function has no address of its own";
  const auto names = made.symbols.find(profile::CallAddress(frames[0]));
  ASSERT_NE(names, made.symbols.end());
  ASSERT_THAT(names->second, SizeIs(2));
  EXPECT_EQ(names->second[0].function, "inner");
  EXPECT_EQ(names->second[1].line, 7u);
  EXPECT_EQ(made.symbols.at(profile::CallAddress(frames[1]))[0].function, "libc.so.6+0x63");
  EXPECT_EQ(made.profile.Live().bytes, 1000);
}

TEST(MomentProfilesTest, SaysThatSamplesHaveSeveralIntervals) {
  Timeline moment = Moment("/bin/server", 16, 7, 1000);
  constexpr uint64_t kPeriod = uint64_t{1} << 19;
  MomentProfiles profiles;
  moment.points[0].rows[5] = {.live_bytes = 100 * kPeriod, .live_objects = 50000, .samples = 100};
  EXPECT_FALSE(profiles.Make(moment).profile.several_periods);
  moment.points[0].rows[77] = {.live_bytes = kPeriod, .live_objects = 500, .samples = 30};
  EXPECT_TRUE(profiles.Make(moment).profile.several_periods) << "a sample of these stands for less than the interval";
}

TEST(MomentProfilesTest, ThePathOfAnotherBuildIsTheSame) {
  MomentProfiles profiles;
  const MomentProfile before = profiles.Make(Moment("/bin/server", 16, 7, 1000));
  // The function has moved, in its source and in the file, and the file too.
  const MomentProfile after = profiles.Make(Moment("/usr/local/bin/server", 48, 9, 1000));
  EXPECT_THAT(profile::Difference(after.profile, before.profile).contexts, IsEmpty());
}

TEST(MomentProfilesTest, WhatHasNoPathIsTheOthers) {
  Timeline moment = Moment("/bin/server", 16, 7, 1000);
  moment.points[0].rows[0] = {10, 1, 1};
  moment.points[0].rows[77] = {5, 1, 1, 9};
  MomentProfiles profiles;
  const MomentProfile made = profiles.Make(moment);
  ASSERT_THAT(made.profile.contexts, SizeIs(2));
  for (const profile::Context& context : made.profile.contexts) {
    if (context.frames.size() != 1) continue;
    EXPECT_EQ(made.symbols.at(profile::CallAddress(context.frames[0]))[0].function, "[all other call paths]");
    EXPECT_EQ(context.Live().bytes, 15);
  }
}

}  // namespace
}  // namespace heaptap::history
