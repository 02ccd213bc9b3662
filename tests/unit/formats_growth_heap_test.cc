// SPDX-License-Identifier: Apache-2.0
//
// Tests the growth of a heap, as written and as read.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/reader.h"
#include "userspace/formats/growth_heap.h"

namespace heaptap::formats {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

profile::Profile Sample() {
  profile::Profile profile = {.pid = 1, .period = 1 << 19};
  profile.contexts.push_back({.frames = {0x2001, 0x1001}, .threads = {{.tid = 1, .live = {1, 100, 3.4, 300}}}});
  profile.contexts.push_back({.frames = {0x3001}, .threads = {{.tid = 1, .live = {1, 100, 7, 70000}}}});
  profile.contexts.push_back({.frames = {0x4001}, .threads = {{.tid = 1, .allocated = {1, 100, 3, 300}}}});
  profile.contexts.push_back({.threads = {{.tid = 1, .live = {1, 1, 1, 1}}}});
  profile.mappings.push_back({.start = 0x1000, .end = 0x9000, .path = "/bin/a"});
  profile.warnings = {"incomplete"};
  return profile;
}

TEST(GrowthHeapTest, Text) {
  EXPECT_EQ(GrowthHeap(Sample()),
            "%warn incomplete\n"
            "heap profile: 11: 70301 [11: 70301] @ growthz\n"
            "7: 70000 [7: 70000] @ 0x3000\n"
            "3: 300 [3: 300] @ 0x2000 0x1001\n"
            "1: 1 [1: 1] @ 0x7fffffffffffffff\n"
            "\n"
            "MAPPED_LIBRARIES:\n"
            "00001000-00009000 r-xp 00000000 00:00 0 /bin/a\n");
}

TEST(GrowthHeapTest, ReadersTakeTheNumbersAsTheyAre) {
  profile::Profile profile = Sample();
  profile.warnings.clear();  // only jeprof reads them
  Reader reader;
  reader.Write("profile", GrowthHeap(profile));
  for (const char* tool : {"jeprof", "google-pprof"}) {
    const Output output = reader.Run(absl::StrCat(tool, " --text --show_bytes /bin/true profile"));
    EXPECT_EQ(output.status, 0) << output.err;
    EXPECT_THAT(output.out, HasSubstr("Total: 70301 B"));
  }
  const Output go = reader.Run("PPROF_TMPDIR=. /usr/bin/go tool pprof -symbolize=none -raw profile");
  EXPECT_EQ(go.status, 0) << go.err;
  EXPECT_THAT(go.out, ContainsRegex("objects/count space/bytes"));
  EXPECT_THAT(go.out, ContainsRegex("7 +70000"));
}

}  // namespace
}  // namespace heaptap::formats
