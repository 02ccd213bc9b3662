// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "userspace/profile/difference.h"
#include "userspace/report/changes.h"

namespace heaptap::report {
namespace {

using profile::Estimate;
using profile::Profile;

constexpr uint64_t kPeriod = 1 << 19;

// Samples of small objects, each of which counts as a period.
Estimate Samples(uint64_t count, uint64_t period = kPeriod) {
  const auto weight = static_cast<double>(period);
  return {.samples = count,
          .sampled_bytes = count * 64,
          .objects = static_cast<double>(count * period / 64),
          .bytes = static_cast<double>(count * period),
          .variance = static_cast<double>(count) * weight * (weight - 64)};
}

Estimate Sum(Estimate a, const Estimate& b) { return a += b; }

Profile OnePath(const Estimate& live, const Estimate& allocated) {
  return {.period = kPeriod, .contexts = {{.frames = {1, 2}, .threads = {{.live = live, .allocated = allocated}}}}};
}

Profile OnePath(uint64_t live, uint64_t allocated) { return OnePath(Samples(live), Samples(allocated)); }

Measure Change(const Profile& before, const Profile& after) {
  const Profile difference = profile::Difference(after, before);
  const std::vector<Measures> changes = ChangesOf(difference, after, before);
  EXPECT_EQ(changes.size(), difference.contexts.size());
  return changes.empty() ? Measure{} : changes[0].live;
}

// The error of so many samples.
double ErrorOf(double samples) { return std::sqrt(samples * kPeriod * (kPeriod - 64)); }

TEST(ChangesTest, ALeakRestsOnItsNewSamples) {
  const Measure change = Change(OnePath(100, 100), OnePath(104, 104));
  EXPECT_EQ(change.samples, 4u);
  EXPECT_DOUBLE_EQ(change.bytes, 4 * kPeriod);
  EXPECT_NEAR(change.Error(), ErrorOf(4), 1);
}

TEST(ChangesTest, ACacheThatReplacesItsObjectsIsNoisy) {
  // All 100 samples were replaced, and there are four more by chance.
  const Measure change = Change(OnePath(100, 500), OnePath(104, 900));
  EXPECT_EQ(change.samples, 204u);
  EXPECT_NEAR(change.Error(), ErrorOf(204), 1);
  EXPECT_LT(std::fabs(change.bytes), 2 * change.Error());
}

TEST(ChangesTest, TwoProcessesHaveNoSampleInCommon) {
  Profile before = OnePath(100, 100);
  Profile after = OnePath(104, 104);
  before.pid = 10;
  EXPECT_EQ(Change(before, after).samples, 4u) << "a dump does not always say its process";
  after.pid = 11;
  EXPECT_EQ(Change(before, after).samples, 204u);
  after.pid = 0;
  after.period = 2 * kPeriod;
  EXPECT_EQ(Change(before, after).samples, 204u) << "another run";
  after.pid = 10;
  EXPECT_EQ(Change(before, after).samples, 4u) << "samples stay when the interval changes";
}

// 100 heavy samples stay, and 64 light ones are new: the error is that of the light ones.
TEST(ChangesTest, NewSamplesOfAShorterInterval) {
  constexpr uint64_t kShort = 1 << 14;
  const Estimate mixed = Sum(Samples(100), Samples(64, kShort));
  const double error = std::sqrt(64.0 * kShort * (kShort - 64));
  const Measure change = Change(OnePath(100, 100), OnePath(mixed, mixed));
  EXPECT_EQ(change.samples, 64u);
  EXPECT_EQ(change.bytes, 64 * kShort);
  EXPECT_NEAR(change.Error(), error, 1);

  const auto moment = [](const Estimate& live) {
    return Profile{.has_allocated = false,
                   .contexts = {{.frames = {1, 2}, .threads = {{.live = live}}, .allocated_samples = live.samples}}};
  };
  EXPECT_NEAR(Change(moment(Samples(100)), moment(mixed)).Error(), error, 1);
  // Twenty of the heavy ones are gone.
  EXPECT_NEAR(Change(OnePath(100, 100), OnePath(Sum(Samples(80), Samples(64, kShort)), mixed)).Error(),
              std::hypot(ErrorOf(20), error), 1);
}

// A moment of the history knows of the allocated samples only their number, or nothing.
TEST(ChangesTest, MomentsRestOnTheirNewSamplesToo) {
  const auto moment = [](uint64_t live, uint64_t allocated) {
    return Profile{
        .period = kPeriod,
        .has_allocated = false,
        .contexts = {{.frames = {1, 2}, .threads = {{.live = Samples(live)}}, .allocated_samples = allocated}}};
  };
  const Measure change = Change(moment(100, 300), moment(104, 304));
  EXPECT_EQ(change.samples, 4u);
  EXPECT_NEAR(change.Error(), ErrorOf(4), 1);
  EXPECT_EQ(Change(moment(100, 300), moment(104, 330)).samples, 56u);
  EXPECT_EQ(Change(moment(100, 0), moment(104, 0)).samples, 204u) << "unknown";
  EXPECT_EQ(Change(moment(100, 300), moment(104, 20)).samples, 204u) << "other books";
  EXPECT_FALSE(profile::Difference(moment(1, 1), moment(1, 2)).has_allocated);
}

TEST(ChangesTest, WhatIsFreedCountsToo) {
  const Measure change = Change(OnePath(100, 100), OnePath(90, 100));
  EXPECT_EQ(change.samples, 10u);
  EXPECT_LT(change.bytes, 0);
  EXPECT_NEAR(change.Error(), ErrorOf(10), 1);
}

TEST(ChangesTest, MoreThanCanBeThere) {
  // Events of allocations were lost: twenty live samples, where there were ten and five more at most.
  EXPECT_EQ(Change(OnePath(10, 100), OnePath(20, 105)).samples, 5u);
}

TEST(ChangesTest, WithoutCountsOfAllocationsAllSamplesMayHaveChanged) {
  EXPECT_EQ(Change(OnePath(100, 0), OnePath(104, 0)).samples, 204u);
}

TEST(ChangesTest, PathsOfOneProfileOnly) {
  EXPECT_EQ(Change({.period = kPeriod}, OnePath(3, 3)).samples, 3u);
  EXPECT_EQ(Change(OnePath(3, 3), {.period = kPeriod}).samples, 3u);
}

TEST(ChangesTest, TheEarlierProfileIsKnown) {
  const Profile before = OnePath(100, 0);
  const auto of = [&](const Profile& after) {
    return ChangesOf(profile::Difference(after, before, profile::Unchanged::kKeep), after, before);
  };
  EXPECT_EQ(of(OnePath(104, 0)).at(0).before.bytes, 100 * kPeriod);
  EXPECT_EQ(of({.period = kPeriod}).at(0).before.bytes, 100 * kPeriod);
  // An unchanged path has no change and so no error, also without counts of allocations.
  EXPECT_EQ(of(before).at(0).before.bytes, 100 * kPeriod);
  EXPECT_EQ(of(before).at(0).live, Measure());
}

TEST(ChangesTest, ExactRecordingsHaveNoError) {
  const auto exact = [](uint64_t objects) {
    const auto count = static_cast<double>(objects);
    const Estimate all = {.samples = objects, .sampled_bytes = 64 * objects, .objects = count, .bytes = 64 * count};
    return OnePath(all, all);
  };
  EXPECT_EQ(Change(exact(10), exact(20)).bytes, 640);
  EXPECT_EQ(Change(exact(10), exact(20)).Error(), 0);
}

}  // namespace
}  // namespace heaptap::report
