// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "userspace/cli/subjects/growth.h"
#include "userspace/report/human.h"

namespace heaptap::cli {
namespace {

using profile::Context;
using profile::Profile;
using report::HumanBytes;
using report::HumanDuration;
using report::HumanLosses;
using ::testing::HasSubstr;

Context Make(std::vector<uint64_t> frames, double objects, double bytes) {
  return {.frames = std::move(frames), .threads = {{.live = {.objects = objects, .bytes = bytes}}}};
}

Growth Example() {
  const Profile before = {.contexts = {Make({0x10, 0x99}, 10, 10000), Make({0x20}, 5, 500), Make({0x30}, 1, 1)}};
  const Profile after = {
      .contexts = {Make({0x10, 0x99}, 11, 20240), Make({0x40}, 100, 2000), Make({0x30}, 1, 1), Make({}, 3, 30)}};
  return FindGrowth(before, after);
}

std::vector<profile::SourceFrame> Name(uint64_t address) {
  if (address == 0xf) return {{.function = "inline"}, {.function = "leak\x1b"}};
  if (address == 0x98) return {{.function = "main"}};
  return {};
}

std::string Text(const Growth& growth) {
  const report::NamedProfile named(growth.difference, Name, growth.measures);
  return report::SummaryText(named, named.paths(), ToSubject(growth, "x since y"), {}, {});
}

TEST(GrowthTest, Text) {
  EXPECT_EQ(
      Text(Example()),
      "x since y\n"
      "  live       +11.5K in +99 objects: 10.3K in 16 objects before, 21.7K in 115 objects after (every allocation "
      "is recorded)\n"
      "\n"
      "what grew most:\n"
      "   1. +10.0K, +1 object, 0 samples changed\n"
      "        inline (inlined)\n"
      "        leak\\033\n"
      "        main\n"
      "   2. +2.0K, +100 objects, 0 samples changed\n"
      "        0x3f\n"
      "   3. +30, +3 objects, 0 samples changed\n"
      "        [unknown call path]\n"
      "   4. -500, -5 objects, 0 samples changed\n"
      "        0x1f\n");
}

TEST(GrowthTest, WhatShrankComesLast) {
  const Profile before = {.contexts = {Make({0x10}, 10, 10000)}};
  const Profile after = {.contexts = {Make({0x20}, 1, 5)}};
  EXPECT_THAT(Text(FindGrowth(before, after)), HasSubstr("   1. +5, "));
  const auto document = nlohmann::json::parse(GrowthJson(FindGrowth(before, after), 0, report::Unit::kBytes, Name));
  EXPECT_EQ(document["call_paths"][0]["bytes"], 5);
}

TEST(GrowthTest, Json) {
  const auto document = nlohmann::json::parse(GrowthJson(Example(), 2, report::Unit::kBytes, Name));
  EXPECT_EQ(document["before"], (nlohmann::json{{"bytes", 10501}, {"objects", 16}}));
  EXPECT_EQ(document["difference"], (nlohmann::json{{"bytes", 11770}, {"objects", 99}}));
  EXPECT_EQ(document["changed_call_paths"], 4);
  ASSERT_EQ(document["call_paths"].size(), 2);
  EXPECT_EQ(document["call_paths"][0]["frames"][0]["names"], (nlohmann::json{"inline", "leak\\033"}));
  EXPECT_EQ(document["call_paths"][0]["error"], 0);
}

TEST(GrowthTest, JsonByObjects) {
  const auto document = nlohmann::json::parse(GrowthJson(Example(), 0, report::Unit::kObjects, Name));
  ASSERT_EQ(document["call_paths"].size(), 4);
  EXPECT_EQ(document["call_paths"][0]["objects"], 100);
}

TEST(GrowthTest, Nothing) {
  const Profile profile = {.contexts = {Make({0x10}, 1, 1)}};
  EXPECT_EQ(Text(FindGrowth(profile, profile)),
            "x since y\n"
            "  live       0 in 0 objects: 1 in 1 object before, 1 in 1 object after (every allocation is recorded)\n");
}

TEST(GrowthTest, ProfilesOfTwoProcesses) {
  Profile one;
  Profile two;
  EXPECT_TRUE(IsSameProcess(one, two)) << "nothing is known";
  one.mappings = {{.start = 0x1000, .end = 0x2000, .path = "/bin/x"},
                  {.start = 0x9000, .end = 0xa000, .path = "[vsyscall]"}};
  EXPECT_TRUE(IsSameProcess(one, two));
  two.mappings = {{.start = 0x5000, .end = 0x6000, .path = "/bin/x"},
                  {.start = 0x9000, .end = 0xa000, .path = "[vsyscall]"}};
  EXPECT_FALSE(IsSameProcess(one, two));
  two.mappings.push_back({.start = 0x1000, .end = 0x2000, .path = "/bin/x"});
  EXPECT_TRUE(IsSameProcess(one, two));
}

// A program at a fixed address, and libraries at random ones.
TEST(GrowthTest, AProgramAtAFixedAddress) {
  Profile one;
  one.mappings = {{.start = 0x1000, .end = 0x2000, .inode = 1, .path = "/bin/x", .build_id = "a"},
                  {.start = 0x7000, .end = 0x8000, .inode = 2, .path = "/lib/libc.so", .build_id = "c"}};
  Profile two = one;
  EXPECT_TRUE(IsSameProcess(one, two));
  two.mappings[0].build_id = "b";
  EXPECT_FALSE(IsSameProcess(one, two)) << "another build";
  two.mappings[0].build_id = "";
  EXPECT_TRUE(IsSameProcess(one, two)) << "an older dump does not tell";
  two.mappings[0].inode = 3;
  EXPECT_FALSE(IsSameProcess(one, two)) << "another file";
  two = one;
  two.mappings[1].start += 0x10000;
  EXPECT_FALSE(IsSameProcess(one, two)) << "the library is elsewhere";
  // But a process may load a library again.
  for (Profile* profile : {&one, &two}) {
    profile->mappings.push_back({.start = 0xa000, .end = 0xb000, .inode = 4, .path = "/lib/libm.so", .build_id = "m"});
  }
  EXPECT_TRUE(IsSameProcess(one, two));
}

TEST(HumanTest, Bytes) {
  const std::pair<double, const char*> kTexts[] = {
      {0, "0"},         {0.4, "0"},         {1023, "1023"},    {1023.6, "1.0K"}, {1024, "1.0K"},
      {1536, "1.5K"},   {1048575, "1.0M"},  {1048576, "1.0M"}, {-2048, "-2.0K"}, {3e9, "2.8G"},
      {1e300, "16.0E"}, {-1e300, "-16.0E"}, {NAN, "-"}};
  for (const auto& [bytes, text] : kTexts) EXPECT_EQ(HumanBytes(bytes), text) << bytes;
}

TEST(HumanTest, Duration) {
  EXPECT_EQ(HumanDuration(absl::Seconds(-5)), "0s");
  EXPECT_EQ(HumanDuration(absl::Seconds(59.9)), "59s");
  EXPECT_EQ(HumanDuration(absl::Seconds(123)), "2m03s");
  EXPECT_EQ(HumanDuration(absl::Hours(5) + absl::Minutes(12)), "5h12m");
  EXPECT_EQ(HumanDuration(absl::Hours(76)), "3d04h");
}

TEST(HumanTest, Losses) {
  EXPECT_EQ(HumanLosses({}), "0");
  EXPECT_EQ(HumanLosses({{"a", 0}}), "0");
  EXPECT_EQ(HumanLosses({{"a\x1b", 12}, {"b", 0}}), "12 a?");
  EXPECT_EQ(HumanLosses({{"a", 1}, {"b\x1b", 2}}), "3 (a 1, b? 2)");
  EXPECT_THAT(HumanLosses({{"a", UINT64_MAX}, {"b", 2}}), HasSubstr("18446744073709551615 ("));
}

TEST(HumanTest, ATableLeavesOutWhatCanBeSparedWhereThereIsNoRoom) {
  report::Table table({{"PID", true}, {"COMMAND"}, {"CONTEXTS", true, 2}, {"RATE", true, 1}, {"LOSSES"}});
  table.Add({"12345", "redis-server", "7", "100", "0"});
  const std::string all =
      "  PID  COMMAND       CONTEXTS  RATE  LOSSES\n"
      "12345  redis-server         7   100  0\n";
  EXPECT_EQ(table.Text(), all);
  EXPECT_EQ(table.Text(43), all);
  EXPECT_EQ(table.Text(42),
            "  PID  COMMAND       RATE  LOSSES\n"
            "12345  redis-server   100  0\n");
  const std::string least =
      "  PID  COMMAND       LOSSES\n"
      "12345  redis-server  0\n";
  EXPECT_EQ(table.Text(32), least);
  EXPECT_EQ(table.Text(1), least) << "the rest stays";
}

}  // namespace
}  // namespace heaptap::cli
