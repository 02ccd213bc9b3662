// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/formats/heap_v2.h"

namespace heaptap::formats {
namespace {

using profile::Context;
using profile::Estimate;
using profile::Profile;
using profile::ThreadShare;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Every allocation recorded, in effect: a period so small that lines are written as they are.
constexpr uint64_t kEverything = 1;

// One object of `bytes` bytes that is live, and one more that is freed.
ThreadShare Share(uint32_t tid, double bytes) {
  return {.tid = tid, .live = {1, 0, 1, bytes}, .allocated = {2, 0, 2, 2 * bytes}};
}

std::vector<std::string> Lines(const Profile& profile) { return absl::StrSplit(HeapV2(profile), '\n'); }

TEST(HeapV2, EmptyProfile) {
  Profile profile = {.period = 524288};
  EXPECT_EQ(HeapV2(profile), "heap_v2/524288\n  t*: 0: 0 [0: 0]\n\nMAPPED_LIBRARIES:\n");
}

TEST(HeapV2, WholeFile) {
  Profile profile = {.period = kEverything};
  profile.contexts = {{.frames = {0x1001, 0x2000}, .threads = {Share(7, 100), Share(9, 200)}},
                      {.frames = {0x1001}, .threads = {Share(9, 1000)}}};
  profile.thread_names = {{7, "main"}, {8, "idle"}};
  profile.mappings = {{.start = 0x1000,
                       .end = 0x3000,
                       .file_offset = 0x10,
                       .device_major = 8,
                       .device_minor = 0x1f,
                       .inode = 42,
                       .path = "/usr/lib/libx.so.1",
                       .deleted = true},
                      {.start = 0x7ffff7fc1000, .end = 0x7ffff7fc3000, .path = "[vdso]"},
                      {.start = 0x7ffff8000000, .end = 0x7ffff8001000}};
  profile.warnings = {"4 samples lost"};
  EXPECT_EQ(HeapV2(profile),
            "%warn 4 samples lost\n"
            "heap_v2/1\n"
            "  t*: 3: 1300 [6: 2600]\n"
            "  t7: 1: 100 [2: 200] main\n"
            "  t9: 2: 1200 [4: 2400]\n"
            "@ 0x1000\n"
            "  t*: 1: 1000 [2: 2000]\n"
            "  t9: 1: 1000 [2: 2000]\n"
            "@ 0x1000 0x2000\n"
            "  t*: 2: 300 [4: 600]\n"
            "  t7: 1: 100 [2: 200]\n"
            "  t9: 1: 200 [2: 400]\n"
            "\n"
            "MAPPED_LIBRARIES:\n"
            "00001000-00003000 r-xp 00000010 08:1f 42 /usr/lib/libx.so.1\n"
            "7ffff7fc1000-7ffff7fc3000 r-xp 00000000 00:00 0 [vdso]\n"
            "7ffff8000000-7ffff8001000 r-xp 00000000 00:00 0\n");
}

TEST(HeapV2, TimeAndBuildIdsAreComments) {
  Profile profile = {.period = kEverything};
  profile.time = absl::FromUnixSeconds(1700000000) + absl::Milliseconds(250);
  profile.mappings = {{.start = 0x1000, .end = 0x3000, .inode = 42, .path = "/a", .build_id = "\x01\xfe"},
                      {.start = 0x4000, .end = 0x5000, .inode = 43, .path = "/b"}};
  EXPECT_THAT(HeapV2(profile), ::testing::EndsWith("\nMAPPED_LIBRARIES:\n"
                                                   "# time 2023-11-14T22:13:20.25+00:00\n"
                                                   "# build-id 1000 01fe\n"
                                                   "00001000-00003000 r-xp 00000000 00:00 42 /a\n"
                                                   "00004000-00005000 r-xp 00000000 00:00 43 /b\n"));
}

TEST(HeapV2, CutStacksAreComments) {
  const auto held = [](double bytes) {
    return std::vector<ThreadShare>{{.tid = 1, .live = {1, 1, 1, bytes}, .allocated = {1, 1, 1, bytes}}};
  };
  Profile profile = {.period = kEverything,
                     .contexts = {{.frames = {0x1001}, .truncated = true, .threads = held(10)},
                                  {.frames = {0x2001}, .threads = held(20)}}};
  EXPECT_THAT(HeapV2(profile), ::testing::HasSubstr("\nMAPPED_LIBRARIES:\n# cut 2\n"));
}

TEST(HeapV2, EveryLineIsCorrectedOnItsOwn) {
  constexpr double kPeriod = 524288;
  auto of_one_sample = [](double size) -> Estimate {
    double probability = -std::expm1(-size / kPeriod);
    return {1, static_cast<uint64_t>(size), 1 / probability, size / probability};
  };
  Profile profile = {.period = 524288};
  profile.contexts = {{.frames = {0x11},
                       .threads = {{.tid = 1, .live = of_one_sample(64), .allocated = of_one_sample(64)},
                                   {.tid = 2, .live = of_one_sample(1 << 20), .allocated = of_one_sample(1 << 20)}}}};
  std::vector<std::string> lines = Lines(profile);
  // A line of one sample is that sample again. One of both samples is not their sum: it stands for 8194 objects of 212
  // bytes on average, of which one in 2473 is drawn.
  EXPECT_EQ(lines[2], "  t1: 1: 64 [1: 64]");
  EXPECT_EQ(lines[3], "  t2: 1: 1048576 [1: 1048576]");
  EXPECT_EQ(lines[1], "  t*: 3: 702 [3: 702]");
}

TEST(HeapV2, ContextsThatHoldNothingAreLeftOut) {
  Profile profile = {.period = kEverything};
  profile.contexts = {{.frames = {0x11}, .threads = {{.tid = 1, .live = {}, .allocated = {}}}},
                      {.frames = {0x22}, .threads = {{.tid = 1, .live = {}, .allocated = {1, 8, 1, 800}}}},
                      {.frames = {0x33}, .threads = {}}};
  EXPECT_THAT(Lines(profile), ElementsAre("heap_v2/1", "  t*: 0: 0 [1: 800]", "  t1: 0: 0 [1: 800]", "@ 0x21",
                                          "  t*: 0: 0 [1: 800]", "  t1: 0: 0 [1: 800]", "", "MAPPED_LIBRARIES:", ""));
}

TEST(HeapV2, OrderDoesNotDependOnTheOrderOfContexts) {
  Profile profile = {.period = kEverything};
  profile.contexts = {{.frames = {0x22}, .threads = {Share(1, 100)}},
                      {.frames = {0x11, 0x55}, .threads = {Share(1, 100)}},
                      {.frames = {0x33}, .threads = {Share(1, 500)}},
                      {.frames = {0x11, 0x44}, .threads = {Share(1, 100)}}};
  std::string first = HeapV2(profile);
  std::reverse(profile.contexts.begin(), profile.contexts.end());
  EXPECT_EQ(HeapV2(profile), first);
  std::vector<std::string> stacks;
  for (const std::string& line : Lines(profile)) {
    if (line.starts_with("@")) stacks.push_back(line);
  }
  EXPECT_THAT(stacks, ElementsAre("@ 0x32", "@ 0x10 0x44", "@ 0x10 0x55", "@ 0x21"));
}

TEST(HeapV2, AddressesHaveNoLeadingZeros) {
  Profile profile = {.period = kEverything};
  std::string line = "@";
  std::vector<uint64_t> frames;
  for (int digits = 0; digits < 16; digits++) {
    for (const uint64_t number : {0xf23456789abcdef0 >> (4 * digits), 0xdddddddddddddddd >> (4 * digits)}) {
      frames.push_back(number + (frames.empty() ? 1 : 0));
      absl::StrAppend(&line, absl::StrFormat(" 0x%x", number));
    }
  }
  // More than are written at once.
  for (int i = 0; i < 200; i++) {
    frames.push_back(0x7f0000000000 + i);
    absl::StrAppend(&line, absl::StrFormat(" 0x7f00000000%02x", i));
  }
  profile.contexts = {{.frames = frames, .threads = {Share(1, 100)}}};
  EXPECT_THAT(Lines(profile), Contains(line));
}

TEST(HeapV2, UnknownCallPathHasAnAddress) {
  Profile profile = {.period = kEverything};
  profile.contexts = {{.frames = {}, .threads = {Share(1, 100)}}};
  EXPECT_THAT(HeapV2(profile), HasSubstr("\n@ 0x7fffffffffffffff\n"));
}

TEST(HeapV2, HostileTextStaysOnItsLine) {
  Profile profile = {.period = kEverything};
  profile.contexts = {{.frames = {0x11}, .threads = {Share(1, 100)}}};
  profile.thread_names = {{1, "a\n@ 0x5\n  t*: 9: 9 [9: 9]\r\x1b[31m\x7f"}};
  profile.mappings = {{.start = 1, .end = 2, .inode = 1, .path = "/a\nMAPPED_LIBRARIES:\tb"}};
  profile.warnings = {"one\ntwo"};
  std::string text = HeapV2(profile);
  EXPECT_THAT(text, StartsWith("%warn one\\012two\nheap_v2/1\n"));
  EXPECT_THAT(text, HasSubstr("] a\\012@ 0x5\\012  t*: 9: 9 [9: 9]\\015\\033[31m\\177\n"));
  EXPECT_THAT(text, HasSubstr(" /a\\012MAPPED_LIBRARIES:\\011b\n"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 10);
}

TEST(HeapV2, NoLineHasObjectsWithoutBytesOrBytesWithoutObjects) {
  for (uint64_t period : {uint64_t{1}, uint64_t{524288}, uint64_t{1} << 63}) {
    Profile profile = {.period = period};
    double estimates[] = {0, 1e-9, 0.3, 1, 1e6, 1e30};
    uint64_t frame = 0;
    for (double objects : estimates) {
      for (double bytes : estimates) {
        Estimate estimate = {1, 1, objects, bytes};
        profile.contexts.push_back({.frames = {++frame}, .threads = {{1, estimate, estimate}}});
      }
    }
    const std::string text = HeapV2(profile);
    EXPECT_THAT(text.substr(0, text.find("MAPPED_LIBRARIES")),
                Not(::testing::ContainsRegex("[^0-9]0: [1-9]|[1-9]: 0[^0-9]")))
        << period;
  }
}

}  // namespace
}  // namespace heaptap::formats
