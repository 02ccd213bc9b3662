// SPDX-License-Identifier: Apache-2.0
//
// Tests what the real jeprof shows of symbolized profiles, without the program.
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/large_profile.h"
#include "tests/unit/reader.h"
#include "userspace/formats/jeprof_symbolized.h"

namespace heaptap::formats {
namespace {

using profile::Profile;
using profile::ThreadShare;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

ThreadShare Share(uint32_t tid, double bytes) {
  return {.tid = tid, .live = {1, 0, 1, bytes}, .allocated = {2, 0, 2, 2 * bytes}};
}

std::vector<profile::SourceFrame> Names(uint64_t address) {
  switch (address) {
    case 0x1000:
      return {{.function = "append"}, {.function = "make_buffer"}};
    case 0x2000:
      return {{.function = "serve"}};
    case 0x3000:
      return {{.function = "Counter::operator--"}};
    default:
      return {};
  }
}

class JeprofSymbolizedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(access("/usr/bin/jeprof", X_OK), 0) << "jeprof comes with libjemalloc-dev: run scripts/bootstrap";
    profile_.mappings = {{.start = 0x1000, .end = 0x9000, .inode = 1, .path = "/no/such/program"},
                         {.start = 0x10000, .end = 0x11000, .inode = 2, .path = "/no/such/libx.so.1"}};
    profile_.thread_names = {{1, "main"}, {2, "worker"}};
    profile_.contexts = {{.frames = {0x1001, 0x2001, 0x3001}, .threads = {Share(1, 1000), Share(2, 200)}},
                         {.frames = {0x2001, 0x3001}, .threads = {Share(1, 50)}},
                         {.frames = {}, .threads = {Share(1, 7)}},
                         {.frames = {0x4001}, .threads = {Share(1, 3)}}};
  }

  Output Jeprof(const std::string& options, const profile::FindSourceFrames& find = Names) const {
    reader_.Write("heap", JeprofSymbolized(profile_, "/no/such/program", find));
    Output output = reader_.Run(absl::StrCat("JEPROF_TMPDIR=. /usr/bin/jeprof ", options, " heap"));
    EXPECT_EQ(output.status, 0) << output.err;
    EXPECT_THAT(output.err, Not(ContainsRegex("WARNING|Illegal|uninitialized|unknown|rror|objdump"))) << output.err;
    return output;
  }

  static std::vector<std::string> Lines(const Output& output) {
    return absl::StrSplit(output.out, '\n', absl::SkipEmpty());
  }

  Reader reader_;
  // Every allocation recorded, in effect: lines are written as they are.
  Profile profile_ = {.period = 1};
};

TEST_F(JeprofSymbolizedTest, WholeFile) {
  const std::string file = JeprofSymbolized(profile_, "/no/such/program", Names);
  EXPECT_THAT(file, EndsWith("\n\nMAPPED_LIBRARIES:\n"));
  EXPECT_THAT(file, StartsWith("--- symbol\n"
                               "binary=program\n"
                               "0x1000 make_buffer--append\n"
                               "0x2000 serve\n"
                               "0x3000 Counter::operator- - \n"
                               "0x4000 program+0x3000\n"
                               "0x7fffffffffffffff [unknown call path]\n"
                               "---\n"
                               "--- heap\n"
                               "heap_v2/1\n"));
}

TEST_F(JeprofSymbolizedTest, NamesOfWholeStacks) {
  EXPECT_THAT(Lines(Jeprof("--collapsed")),
              UnorderedElementsAre("Counter::operator- - ;serve;make_buffer;append[inline] 1200",
                                   "Counter::operator- - ;serve 50", "[unknown call path] 7", "program+0x3000 3"));
}

TEST_F(JeprofSymbolizedTest, TextOfAllAndOfOneThread) {
  EXPECT_THAT(Jeprof("--text --show_bytes").out, ContainsRegex("\n *1200 .* append \\(inline\\)"));
  EXPECT_THAT(Jeprof("--text --show_bytes --thread=2").out, ContainsRegex("\n *200 .* append \\(inline\\)"));
}

TEST_F(JeprofSymbolizedTest, Differences) {
  reader_.Write("base", JeprofSymbolized(profile_, "/no/such/program", Names));
  profile_.contexts[1].threads[0] = Share(1, 80);
  EXPECT_THAT(Jeprof("--text --show_bytes --base=base").out, ContainsRegex("\n *30 .* serve"));
}

TEST_F(JeprofSymbolizedTest, EmptyProfile) {
  profile_ = {.period = 524288};
  EXPECT_THAT(Jeprof("--text").out, IsEmpty());
}

TEST_F(JeprofSymbolizedTest, HostileNamesAreNothingElse) {
  constexpr uint64_t kFirst = 0x100;
  const std::vector<std::string> names = {"a\n---\n--- heap\nheap_v2/1\n", "\n0x2000 forged", "x--y---z", "-",
                                          std::string("\0\xff\r\x1b", 4),  "binary=/b"};
  profile_.contexts.clear();
  for (uint64_t i = 0; i < names.size(); ++i) {
    profile_.contexts.push_back(
        {.frames = {kFirst + i + 1, 0x2001}, .threads = {Share(1, static_cast<double>(i + 1))}});
  }
  profile_.thread_names[1] = "\n--- symbol\n";
  auto find = [&names](uint64_t address) {
    return std::vector<profile::SourceFrame>{
        {.function = address - kFirst < names.size() ? names[address - kFirst] : "serve"}};
  };
  Output output = Jeprof("--collapsed", find);
  EXPECT_THAT(Lines(output), UnorderedElementsAre("serve;a\\012- - -\\012- - - heap\\012heap_v2/1\\012 1",
                                                  "serve;\\0120x2000 forged 2", "serve;x- -y- - -z 3", "serve;-  4",
                                                  "serve;\\000\\377\\015\\033 5", "serve;binary=/b 6"));
}

TEST(JeprofSymbolized, HostilePathOfTheProgram) {
  EXPECT_THAT(JeprofSymbolized({}, "/a\n---\nb", {}), StartsWith("--- symbol\nbinary=a\\012---\\012b\n0x7fff"));
}

TEST(JeprofSymbolized, OfLargeProfiles) {
  ExpectLinear([](size_t which) { JeprofSymbolized(LargeProfiles()[which], "/bin/program", {}); });
}

}  // namespace
}  // namespace heaptap::formats
