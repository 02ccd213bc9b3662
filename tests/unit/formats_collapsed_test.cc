// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <regex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/large_profile.h"
#include "userspace/formats/collapsed.h"
#include "userspace/profile/frame_names.h"

namespace heaptap::formats {
namespace {

using profile::Profile;
using profile::ThreadShare;
using ::testing::ElementsAre;

ThreadShare Share(uint32_t tid, double bytes) {
  return {.tid = tid, .live = {1, 0, 2, bytes}, .allocated = {2, 0, 3, 2 * bytes}};
}

std::vector<profile::SourceFrame> Names(uint64_t address) {
  switch (address) {
    case 0x1000:
      return {{.function = "inner"}, {.function = "outer<a; b>"}};
    case 0x1001:
      return {{.linkage_name = "_Z4mainv"}};
    default:
      return {};
  }
}

std::string Live(const Profile& profile, const profile::FindSourceFrames& find = Names) {
  return Collapsed(profile, CollapsedValue::kLiveBytes, find);
}

TEST(Collapsed, EmptyProfile) { EXPECT_EQ(Live({}), ""); }

TEST(Collapsed, WholeFile) {
  Profile profile = {.contexts = {{.frames = {0x1001, 0x1002}, .threads = {Share(1, 100), Share(2, 20.4)}},
                                  {.frames = {0x1002}, .threads = {Share(1, 5)}},
                                  {.frames = {}, .threads = {Share(1, 7)}},
                                  {.frames = {0x9, 0x1002}, .threads = {Share(1, 0)}},
                                  {.frames = {0xa, 0x1002}, .threads = {Share(1, -8)}}}};
  EXPECT_EQ(Live(profile), "[unknown call path] 7\n_Z4mainv 5\n_Z4mainv;outer<a: b>;inner 120\n");
}

TEST(Collapsed, EachValue) {
  Profile profile = {.contexts = {{.frames = {0x1002}, .threads = {Share(1, 50)}}}};
  EXPECT_EQ(Collapsed(profile, CollapsedValue::kLiveBytes, Names), "_Z4mainv 50\n");
  EXPECT_EQ(Collapsed(profile, CollapsedValue::kLiveObjects, Names), "_Z4mainv 2\n");
  EXPECT_EQ(Collapsed(profile, CollapsedValue::kAllocatedBytes, Names), "_Z4mainv 100\n");
  EXPECT_EQ(Collapsed(profile, CollapsedValue::kAllocatedObjects, Names), "_Z4mainv 3\n");
}

// A program chooses its names: the text of its call paths must not take any amount of memory.
TEST(Collapsed, IsNotLongerThanAllowed) {
  constexpr uint64_t kMost = 1 << 20;
  const std::string name(kMost / 64, 'n');
  const profile::FindSourceFrames find = [&](uint64_t) {
    return std::vector<profile::SourceFrame>{{.function = name}};
  };
  Profile profile;
  for (const size_t depth : {30, 40}) {
    SCOPED_TRACE(depth);
    profile.contexts.push_back({.frames = std::vector<uint64_t>(depth, 0x1001), .threads = {Share(1, 1)}});
    const absl::StatusOr<std::string> text = CollapsedWithin(kMost, profile, CollapsedValue::kLiveBytes, find);
    if (depth == 30) {
      ASSERT_TRUE(text.ok()) << text.status();
      EXPECT_EQ(*text, Live(profile, find));
    } else {
      EXPECT_TRUE(absl::IsOutOfRange(text.status())) << text.status();
    }
  }
}

TEST(Collapsed, WithoutSymbolsFilesAndOffsets) {
  Profile profile = {.contexts = {{.frames = {0x5011, 0x7001, 0x8001, 0x4fff, 0x9001}, .threads = {Share(1, 1)}}},
                     .mappings = {{.start = 0x5000, .end = 0x6000, .file_offset = 0x200, .path = "/a/libx.so"},
                                  {.start = 0x7000, .end = 0x7100, .path = "[vdso]"},
                                  {.start = 0x8000, .end = 0x9000}}};
  EXPECT_EQ(Live(profile, {}), "0x9000;0x4ffe;0x8000;[vdso]+0x0;libx.so+0x210 1\n");
}

TEST(Collapsed, ADeepStackHasAMark) {
  Profile profile = {.contexts = {{.frames = {0x1001, HEAPTAP_FRAMES_LEFT_OUT, 0x1002}, .threads = {Share(1, 10)}}}};
  EXPECT_EQ(Live(profile), "_Z4mainv;[frames left out];outer<a: b>;inner 10\n");
  EXPECT_EQ(Live(profile, {}), "0x1001;[frames left out];0x1000 10\n");
  EXPECT_EQ(profile::PlaceText("", profile::CallAddress(HEAPTAP_FRAMES_LEFT_OUT)), "[frames left out]");
  EXPECT_EQ(profile::PlaceText("/lib/x.so", profile::CallAddress(HEAPTAP_FRAMES_LEFT_OUT)), "x.so+0x0");
}

TEST(Collapsed, ACutStackHasAnotherRoot) {
  Profile profile = {.contexts = {{.frames = {0x1001}, .truncated = true, .threads = {Share(1, 10)}},
                                  {.frames = {}, .truncated = true, .threads = {Share(1, 2)}}}};
  EXPECT_EQ(Live(profile, {}), "[outer frames missing];0x1000 10\n[unknown call path] 2\n");
}

TEST(Collapsed, EqualNamesAreOneLine) {
  Profile profile = {
      .contexts = {{.frames = {0x11}, .threads = {Share(1, 1.4)}}, {.frames = {0x12}, .threads = {Share(1, 1.4)}}}};
  EXPECT_EQ(Live(profile, [](uint64_t) { return std::vector<profile::SourceFrame>{{.function = "same"}}; }),
            "same 3\n");
}

// flamegraph.pl's reading of a line: the stack, the value, and perhaps a first value.
TEST(Collapsed, HostileNamesStayOnTheirLineAndInTheirFrame) {
  const std::string hostile = absl::StrCat("a;b\n c 1\r", std::string(1, '\0'), "\xff\x1b[31m");
  const std::vector<std::string> names = {hostile, "two 12", "x 1.5", "12", "\n", ";", " 3", "plain"};
  Profile profile;
  for (uint64_t i = 0; i < names.size(); ++i) {
    profile.contexts.push_back({.frames = {0x1001 + i, 0x9000}, .threads = {Share(1, 10)}});
  }
  auto find = [&names](uint64_t address) {
    return std::vector<profile::SourceFrame>{{.function = address < 0x2000 ? names.at(address - 0x1000) : "main"}};
  };
  const std::regex line_pattern("^(.*)\\s+?(\\d+(?:\\.\\d*)?)$");
  std::vector<std::string> innermost;
  std::vector<std::string> lines = absl::StrSplit(Live(profile, find), '\n', absl::SkipEmpty());
  for (const std::string& line : lines) {
    std::smatch match;
    ASSERT_TRUE(std::regex_match(line, match, line_pattern)) << line;
    EXPECT_EQ(match[2], "10");
    const std::string stack = match[1];
    EXPECT_FALSE(std::regex_match(stack, line_pattern)) << stack;
    std::vector<std::string> frames = absl::StrSplit(stack, ';');
    ASSERT_EQ(frames.size(), 2u) << line;
    EXPECT_EQ(frames[0], "main");
    innermost.push_back(frames[1]);
  }
  EXPECT_THAT(innermost, ElementsAre("12", ":", "\\012", "_3", "a:b\\012 c 1\\015\\000\\377\\033[31m", "plain",
                                     "two_12", "x_1.5"));
}

TEST(Collapsed, OfLargeProfiles) {
  ExpectLinear([](size_t which) { Live(LargeProfiles()[which], {}); });
}

}  // namespace
}  // namespace heaptap::formats
