// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "userspace/profile/difference.h"
#include "userspace/report/by_names.h"
#include "userspace/report/changes.h"

namespace heaptap::report {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kPeriod = 4096;

// One build has `fill` inlined at another line, and a Rust hash of its own.
std::vector<profile::SourceFrame> First(uint64_t address) {
  static const auto* const frames = new std::map<uint64_t, std::vector<profile::SourceFrame>>{
      {0x10, {{.function = "main", .file = "a.cc", .line = 10}}},
      {0x20, {{.function = "fill(int)", .file = "a.cc", .line = 5}, {.function = "load()", .file = "a.cc", .line = 9}}},
      {0x30, {{.function = "std::vector<int>::push_back(int&&)"}}},
      {0x40, {{.function = "app::grow::h0123456789abcdef"}}}};
  const auto found = frames->find(address);
  return found == frames->end() ? std::vector<profile::SourceFrame>() : found->second;
}

std::vector<profile::SourceFrame> Second(uint64_t address) {
  static const auto* const frames = new std::map<uint64_t, std::vector<profile::SourceFrame>>{
      {0x1010, {{.function = "main", .file = "a.cc", .line = 12}}},
      {0x1020, {{.function = "load()", .file = "a.cc", .line = 11}}},
      {0x1028, {{.function = "fill(long)", .file = "a.cc", .line = 6}}},
      {0x1040, {{.function = "app::grow::hfedcba9876543210"}}}};
  const auto found = frames->find(address);
  return found == frames->end() ? std::vector<profile::SourceFrame>() : found->second;
}

profile::Context Make(std::vector<uint64_t> frames, uint64_t samples) {
  const auto count = static_cast<double>(samples);
  return {.frames = std::move(frames),
          .threads = {{.tid = 7,
                       .live = {samples, samples * 64, count * 64, count * kPeriod},
                       .allocated = {samples, samples * 64, count * 64, count * kPeriod}}}};
}

const profile::Profile kBefore = {.pid = 5,
                                  .period = kPeriod,
                                  .contexts = {Make({0x21, 0x11}, 10), Make({0x31, 0x21, 0x11}, 20), Make({0x41}, 4)},
                                  .mappings = {{.start = 0, .end = 0x1000, .path = "/opt/old/app"}}};
const profile::Profile kAfter = {.pid = 5,
                                 .period = kPeriod,
                                 .contexts = {Make({0x1029, 0x1021, 0x1011}, 50), Make({0x1041}, 4)},
                                 .mappings = {{.start = 0x1000, .end = 0x2000, .path = "/opt/new/app"}}};

TEST(ByNamesTest, TwoBuildsHaveTheSamePaths) {
  ByNames by_names;
  const ByNames::Made before = by_names.Make(kBefore, First);
  const ByNames::Made after = by_names.Make(kAfter, Second);
  ASSERT_THAT(before.profile.contexts, SizeIs(2)) << "what only passes an allocation on does not count";
  ASSERT_THAT(after.profile.contexts, SizeIs(2));
  const profile::Profile difference = profile::Difference(after.profile, before.profile, profile::Unchanged::kKeep);
  ASSERT_THAT(difference.contexts, SizeIs(2));
  const std::vector<Measures> changes = ChangesOf(difference, after.profile, before.profile);
  std::map<std::vector<std::string>, Measure> by_path;
  for (size_t i = 0; i < changes.size(); i++) {
    std::vector<std::string> names;
    for (const uint64_t frame : difference.contexts[i].frames) {
      const auto found = after.symbols.find(profile::CallAddress(frame));
      ASSERT_NE(found, after.symbols.end());
      names.push_back(found->second.front().function);
    }
    by_path[names] = changes[i].live;
  }
  const Measure grown = by_path[{"fill", "load", "main"}];
  EXPECT_DOUBLE_EQ(grown.bytes, 20 * kPeriod);
  EXPECT_EQ(grown.samples, 80) << "no sample is one of both processes, although their numbers are equal";
  EXPECT_TRUE(by_path.contains({"app::grow"}));
}

TEST(ByNamesTest, HasOnlyWhatIsLive) {
  ByNames by_names;
  const ByNames::Made made = by_names.Make(kBefore, First);
  EXPECT_FALSE(made.profile.has_allocated);
  EXPECT_TRUE(made.profile.Allocated().IsZero());
  EXPECT_DOUBLE_EQ(made.profile.Live().bytes, kBefore.Live().bytes);
  ASSERT_THAT(made.profile.mappings, SizeIs(1));
  EXPECT_EQ(made.profile.mappings[0].path, "/opt/old/app");
}

TEST(ByNamesTest, UnknownPathsAreOne) {
  ByNames by_names;
  const profile::Profile unknown = {.period = kPeriod, .contexts = {Make({}, 3), Make({0x5551}, 1)}};
  const ByNames::Made made = by_names.Make(unknown, nullptr);
  ASSERT_THAT(made.profile.contexts, SizeIs(2));
  EXPECT_THAT(made.profile.contexts[0].frames, IsEmpty());
  ASSERT_THAT(made.profile.contexts[1].frames, SizeIs(1));
  EXPECT_THAT(made.symbols.at(made.profile.contexts[1].frames[0] - 1),
              ElementsAre(::testing::Field(&profile::SourceFrame::function, "0x5550")));
}

}  // namespace
}  // namespace heaptap::report
