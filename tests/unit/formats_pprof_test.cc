// SPDX-License-Identifier: Apache-2.0
//
// Tests what Go's pprof reads from profile.proto files.
#include <unistd.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "protozero/pbf_reader.hpp"
#include "re2/re2.h"
#include "tests/unit/large_profile.h"
#include "tests/unit/reader.h"
#include "userspace/formats/pprof.h"
#include "userspace/profile/difference.h"

namespace heaptap::formats {
namespace {

using profile::Context;
using profile::Profile;
using profile::ThreadShare;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// `live` bytes in as many objects of one byte, and twice that allocated.
ThreadShare Share(uint32_t tid, double live) {
  return {.tid = tid, .live = {1, 1, live, live}, .allocated = {2, 2, 2 * live, 2 * live}};
}

class PprofTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(access("/usr/bin/go", X_OK), 0) << "go comes with golang-go: run scripts/bootstrap";
  }

  Output GoPprof(const std::string& options, const std::string& profile) const {
    reader_.Write("profile", profile);
    return reader_.Run(absl::StrCat("PPROF_TMPDIR=. /usr/bin/go tool pprof ", options, " profile"));
  }

  // The profile as the reader has it in memory.
  std::string Raw(const Profile& profile, const PprofOptions& options = {}) const {
    Output output = GoPprof("-symbolize=none -raw", Pprof(profile, options));
    EXPECT_EQ(output.status, 0) << output.err;
    EXPECT_THAT(output.err, IsEmpty());
    return output.out;
  }

  Reader reader_;
};

// What versions of the reader write differently: mappings get their first address for a number and are sorted by it,
// and lines have no columns, which are 0.
std::string OfAnyReader(std::string raw) {
  RE2::GlobalReplace(&raw, R"((:\d+):0 s=)", R"(\1 s=)");
  const std::string title = "Mappings\n";
  const size_t end = raw.find(title);
  if (end == std::string::npos) return raw;
  std::string locations = raw.substr(0, end);
  std::map<std::string, std::string> mappings;
  const std::vector<std::string> lines = absl::StrSplit(raw.substr(end + title.size()), '\n', absl::SkipEmpty());
  for (const std::string& line : lines) {
    std::string number, begin;
    EXPECT_TRUE(RE2::PartialMatch(line, R"(^(\d+): (0x[0-9a-f]+)/)", &number, &begin)) << line;
    mappings[begin] = line.substr(number.size() + 2);
    RE2::GlobalReplace(&locations, absl::StrCat("M=", number, " "), absl::StrCat("M=", begin, " "));
  }
  std::string result = locations + title;
  for (const auto& [begin, text] : mappings) absl::StrAppend(&result, text, "\n");
  return result;
}

// Gives every address a name made of itself.
std::vector<profile::SourceFrame> Hex(uint64_t address) {
  return {{.function = absl::StrCat("0x", absl::Hex(address))}};
}

// The value in the first column, "flat", of a function; -1 if it is not there.
double Flat(const std::string& table, absl::string_view function) {
  for (absl::string_view line : absl::StrSplit(table, '\n')) {
    std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() >= 6 && words[5] == function) return atof(words[0].c_str());
  }
  return -1;
}

TEST_F(PprofTest, EmptyProfile) {
  EXPECT_EQ(Raw({.period = 524288}),
            "PeriodType: space bytes\n"
            "Period: 524288\n"
            "Samples:\n"
            "alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes[dflt]\n"
            "Locations\n"
            "Mappings\n"
            "1: 0x0/0x0/0x0   \n");  // the reader's own
}

TEST_F(PprofTest, WholeProfile) {
  Profile profile = {.period = 4096};
  profile.mappings = {{.start = 0x1000, .end = 0x2000, .path = ""},
                      {.start = 0x5000, .end = 0x6000, .file_offset = 0x100, .inode = 3, .path = "/lib/libx.so"},
                      {.start = 0x8000,
                       .end = 0x9000,
                       .file_offset = 0x200,
                       .inode = 4,
                       .path = "/bin/program",
                       .build_id = "\xab\x01\xff"}};
  profile.thread_names = {{7, "main"}};
  profile.contexts = {
      {.frames = {0x8001, 0x5001}, .threads = {{7, {1, 1, 2, 300}, {3, 3, 4, 500}}, {9, {}, {1, 1, 1, 9.5}}}},
      {.frames = {}, .threads = {{7, {1, 1, 1, 1}, {1, 1, 1, 1}}}},
      {.frames = {0x5001, 0xf001, 0x1001}, .threads = {{7, {1, 1, 0.4, 0.4}, {1, 1, 0.4, 0.4}}, {8, {1, 1, 1, 1}, {}}}},
  };
  profile.warnings = {"4 samples lost"};
  PprofOptions options = {.time = absl::FromUnixNanos(1700000000123456789),
                          .duration = absl::Seconds(10),
                          .program = "/bin/program",
                          .find_source_frames = [](uint64_t address) -> std::vector<profile::SourceFrame> {
                            if (address != 0x8000) return {};
                            return {{.function = "inlined", .file = "a.h", .line = 7},
                                    {.function = "f(int)", .linkage_name = "_Z1fi", .file = "a.cc", .line = 8}};
                          }};
  std::string raw = Raw(profile, options);
  EXPECT_THAT(raw, ContainsRegex("Comments: *4 samples lost\n|Comment: 4 samples lost\n|^4 samples lost\n"));
  EXPECT_THAT(raw, HasSubstr("Time: 2023-11-14 "));
  EXPECT_THAT(raw, ContainsRegex("Duration: 10\\.?0?0?s?\n"));
  raw.erase(0, raw.find("Samples:"));
  EXPECT_EQ(OfAnyReader(raw),
            "Samples:\n"
            "alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes[dflt]\n"
            "          4        500          2        300: 1 2 \n"
            "                thread:[main]\n"
            "                thread_id:[7]\n"
            "          1         10          0          0: 1 2 \n"
            "                thread_id:[9]\n"
            "          1          1          1          1: 3 \n"
            "                thread:[main]\n"
            "                thread_id:[7]\n"
            "          0          0          1          1: 2 4 5 \n"
            "                thread_id:[8]\n"
            "Locations\n"
            "     1: 0x8000 M=0x8000 inlined a.h:7 s=0\n"
            "             f(int) a.cc:8 s=0(_Z1fi)\n"
            "     2: 0x5000 M=0x5000 \n"
            "     3: 0x0 [unknown call path] :0 s=0\n"
            "     4: 0xf000 \n"
            "     5: 0x1000 M=0x1000 \n"
            "Mappings\n"
            "0x1000/0x2000/0x0 [anonymous]  \n"
            "0x5000/0x6000/0x100 /lib/libx.so  \n"
            "0x8000/0x9000/0x200 /bin/program ab01ff [FN][FL][LN][IN]\n");
}

TEST_F(PprofTest, WithoutWhatWasAllocated) {
  const Profile profile = {.has_allocated = false,
                           .contexts = {{.frames = {0x8001}, .threads = {{.tid = 1, .live = {1, 1, 2, 300}}}}}};
  EXPECT_THAT(Raw(profile),
              HasSubstr("Samples:\ninuse_objects/count inuse_space/bytes[dflt]\n          2        300: 1 \n"));
}

TEST_F(PprofTest, OneSampleForAContextWithoutThreads) {
  Profile profile = {.contexts = {{.frames = {0x8001}, .threads = {Share(1, 0.4), Share(2, 20), Share(3, 0.3)}}},
                     .thread_names = {{2, "main"}}};
  EXPECT_THAT(Raw(profile, {.threads = false}),
              HasSubstr("\n         41         41         21         21: 1 \nLocations\n"));
}

TEST_F(PprofTest, DifferencesHaveSigns) {
  Profile before = {.contexts = {{.frames = {0x8001}, .threads = {{1, {9, 9, 9, 900}, {9, 9, 9, 900}}}}}};
  Profile after = {.contexts = {{.frames = {0x8001}, .threads = {{1, {3, 3, 3, 300}, {12, 12, 12, 1200}}}},
                                {.frames = {0x9001}, .threads = {{1, {1, 1, 1, 100}, {1, 1, 1, 100}}}}}};
  Profile difference = profile::Difference(after, before);
  EXPECT_THAT(Raw(difference), AllOf(HasSubstr("\n          3        300         -6       -600: 1 \n"),
                                     HasSubstr("\n          1        100          1        100: 2 \n")));
  Output top = GoPprof("-top -unit=b", Pprof(difference, {.find_source_frames = Hex}));
  EXPECT_EQ(Flat(top.out, "0x8000"), -600) << top.out;
}

// The reader's own subtraction of two profiles.
TEST_F(PprofTest, AgreesWithTheReadersDifference) {
  Profile before = {.contexts = {{.frames = {0x8001, 0x8100}, .threads = {Share(1, 900), Share(2, 30)}},
                                 {.frames = {0x9001}, .threads = {Share(1, 50)}}}};
  Profile after = {.contexts = {{.frames = {0x8001, 0x8100}, .threads = {Share(1, 1000), Share(2, 30)}},
                                {.frames = {0xa001}, .threads = {Share(2, 7)}}}};
  reader_.Write("before", Pprof(before, {.find_source_frames = Hex}));
  const std::string options = "-top -unit=b -sample_index=inuse_space ";
  Output theirs = GoPprof(options + "-base=before", Pprof(after, {.find_source_frames = Hex}));
  Output ours = GoPprof(options, Pprof(profile::Difference(after, before), {.find_source_frames = Hex}));
  ASSERT_EQ(theirs.status, 0) << theirs.err;
  for (const char* address : {"0x8000", "0x9000", "0xa000", "0x80ff"}) {
    EXPECT_NE(Flat(theirs.out, address), -1) << theirs.out;
    EXPECT_EQ(Flat(ours.out, address), Flat(theirs.out, address)) << address;
  }
}

TEST_F(PprofTest, TablesByFunctionLineAndThread) {
  auto find = [](uint64_t address) -> std::vector<profile::SourceFrame> {
    if (address == 0x8000) return {{.function = "make_buffer", .file = "/src/buffer.cc", .line = 12}};
    return {{.function = "serve", .file = "/src/server.cc", .line = 34}};
  };
  const Profile profile = {
      .contexts = {{.frames = {0x8001, 0x8101}, .threads = {Share(1, 4096), Share(2, 64)}},
                   {.frames = {0x8101}, .threads = {Share(1, 8)}}},
      .mappings = {{.start = 0x8000, .end = 0x9000, .inode = 4, .path = "/srv/server", .build_id = "\xab\x01"}},
      .thread_names = {{2, "worker"}}};
  const std::string file = Pprof(profile, {.find_source_frames = find});
  Output top = GoPprof("-top -unit=b", file);
  EXPECT_EQ(top.status, 0) << top.err;
  EXPECT_THAT(top.out,
              AllOf(HasSubstr("File: server\n"), HasSubstr("Build ID: ab01\n"), HasSubstr("Type: inuse_space\n")));
  EXPECT_EQ(Flat(top.out, "make_buffer"), 4160) << top.out;
  EXPECT_EQ(Flat(top.out, "serve"), 8) << top.out;
  EXPECT_THAT(GoPprof("-top -lines", file).out, HasSubstr("make_buffer /src/buffer.cc:12\n"));
  const std::string objects = "-top -sample_index=alloc_objects ";
  EXPECT_EQ(Flat(GoPprof(objects + "-tagfocus=thread_id=2", file).out, "make_buffer"), 128);
  EXPECT_EQ(Flat(GoPprof(objects + "-tagfocus=thread=worker", file).out, "make_buffer"), 128);
}

TEST_F(PprofTest, ReadersDropTheAllocatorsFrames) {
  const std::vector<std::string> names = {"malloc", "operator new[](unsigned long)", "_Znwm", "my_malloc", "main"};
  auto find = [&names](uint64_t address) { return std::vector<profile::SourceFrame>{{.function = names.at(address)}}; };
  Profile profile = {
      .contexts = {{.frames = {1, 2, 4, 5}, .threads = {Share(1, 10)}}, {.frames = {3, 5}, .threads = {Share(1, 20)}}}};
  Output output = GoPprof("-top -unit=b", Pprof(profile, {.find_source_frames = find}));
  EXPECT_EQ(Flat(output.out, "my_malloc"), 10) << output.out;
  EXPECT_EQ(Flat(output.out, "main"), 20) << output.out;
  EXPECT_THAT(output.out, Not(ContainsRegex(" malloc|operator new|_Znwm")));
}

TEST_F(PprofTest, HostileTextIsNothingElse) {
  std::string every_byte;
  for (int byte = 1; byte < 256; ++byte) every_byte.push_back(static_cast<char>(byte));
  every_byte.push_back('\0');
  Profile profile = {.contexts = {{.frames = {0x1001}, .threads = {Share(1, 10)}}},
                     .mappings = {{.start = 0x1000, .end = 0x2000, .inode = 1, .path = "/" + every_byte}},
                     .thread_names = {{1, every_byte}},
                     .warnings = {every_byte, "\nSamples:\n"}};
  auto find = [&every_byte](uint64_t) {
    return std::vector<profile::SourceFrame>{{.function = every_byte, .linkage_name = every_byte, .file = every_byte}};
  };
  std::string raw = Raw(profile, {.find_source_frames = find});
  EXPECT_THAT(raw, HasSubstr("\n         20         20         10         10: 1 \n"));
  EXPECT_THAT(raw, HasSubstr("\\000"));
  EXPECT_THAT(raw, HasSubstr("\n1: 0x1000/0x2000/0x0 /\\001\\002"));
  for (char c : raw) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << int{c};
}

TEST_F(PprofTest, SurvivesEverySize) {
  Profile profile = {.period = uint64_t{1} << 63};
  for (double objects : {0.0, -0.2, 1.0, 1e25, -1e25, 0.0 / 0.0}) {
    profile.contexts.push_back(
        {.frames = {profile.contexts.size()}, .threads = {{4294967295, {1, 1, objects, objects}, {1, 1, objects, 1}}}});
  }
  std::string raw = Raw(profile);
  EXPECT_THAT(raw, HasSubstr("9223372036854774784          1 9223372036854774784 9223372036854774784"));
  EXPECT_THAT(raw, HasSubstr("-9223372036854774784          1 -9223372036854774784 -9223372036854774784"));
}

// Polar Signals' readers take the id of a location for its index.
TEST_F(PprofTest, NumbersAreInOrderFromOne) {
  Profile profile = {.contexts = {{.frames = {0x2001, 0x1001}, .threads = {Share(1, 10)}},
                                  {.frames = {}, .threads = {Share(1, 10)}},
                                  {.frames = {0x1001, 0x9001}, .threads = {Share(1, 10)}}},
                     .mappings = {{.start = 0x1000, .end = 0x2000},
                                  {.start = 0x2000, .end = 0x3000, .inode = 1, .path = "/program"},
                                  {.start = 0x3000, .end = 0x4000}}};
  reader_.Write("profile", Pprof(profile, {}));
  const Output unpacked = reader_.Run("gzip -dc <profile");
  ASSERT_EQ(unpacked.status, 0) << unpacked.err;
  // Fields of profile.proto: 3 is mapping and 4 location; both have their number in field 1.
  std::map<uint32_t, std::vector<uint64_t>> numbers;
  protozero::pbf_reader reader(unpacked.out);
  while (reader.next()) {
    if (reader.tag() != 3 && reader.tag() != 4) {
      reader.skip();
      continue;
    }
    std::vector<uint64_t>& of_this_kind = numbers[reader.tag()];
    protozero::pbf_reader message = reader.get_message();
    ASSERT_TRUE(message.next(1));
    of_this_kind.push_back(message.get_uint64());
  }
  EXPECT_THAT(numbers[3], ElementsAre(1, 2, 3));
  EXPECT_THAT(numbers[4], ElementsAre(1, 2, 3, 4));
}

TEST(Pprof, EqualProfilesAreEqualFiles) {
  Profile profile = {.contexts = {{.frames = {1, 2, 3}, .threads = {Share(1, 10)}}}};
  EXPECT_EQ(Pprof(profile, {}), Pprof(profile, {}));
}

TEST_F(PprofTest, OfLargeProfiles) {
  std::string file;
  ExpectLinear([&](size_t which) { file = Pprof(LargeProfiles()[which], {}); });
  auto find = [](uint64_t address) -> std::vector<profile::SourceFrame> {
    const std::string number = std::to_string(address >> 6);
    return {{.function = "inlined" + number, .file = "header.h", .line = 1},
            {.function = "function" + number, .file = "source" + number + ".cc", .line = 2}};
  };
  ExpectLinear([&](size_t which) { Pprof(LargeProfiles()[which], {.find_source_frames = find}); });
  Output output = GoPprof("-symbolize=none -top -unit=b", file);
  EXPECT_THAT(output.out, ContainsRegex("of [0-9.]+B total")) << output.err;
}

}  // namespace
}  // namespace heaptap::formats
