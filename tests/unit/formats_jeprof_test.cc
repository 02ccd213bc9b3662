// SPDX-License-Identifier: Apache-2.0
//
// Tests what the real jeprof shows of heap_v2 files. The profiled program is a small one, because jeprof reads all
// symbols of a program each time.
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/reader.h"
#include "tests/unit/symbolize_program.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/elf/file.h"
#include "userspace/elf/mappings.h"
#include "userspace/formats/heap_v2.h"

namespace heaptap::formats {
namespace {

using profile::Estimate;
using profile::Profile;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr uint64_t kPeriod = 524288;

constexpr char kProgram[] = R"(
int jeprof_test_make_buffer(int x) { return x * 3 + 1; }
int jeprof_test_serve(int x) { return jeprof_test_make_buffer(x) - 7; }
int main(int count, char** words) { return jeprof_test_serve(count); }
)";
// Where the program, which can be anywhere, was.
constexpr uint64_t kBase = 0x555555554000;

// `samples` samples of `size` bytes each.
Estimate Sampled(uint64_t samples, double size) {
  double n = static_cast<double>(samples);
  double probability = -std::expm1(-size / kPeriod);
  return {samples, static_cast<uint64_t>(n * size), n / probability, n * size / probability};
}

class JeprofTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(access("/usr/bin/jeprof", X_OK), 0) << "jeprof comes with libjemalloc-dev: run scripts/bootstrap";
    program_ = reader_.Path("program");
    reader_.Write("program.c", kProgram);
    symbolize::Shell("gcc -g -O0 -fPIE -pie -o " + program_ + " " + program_ + ".c");

    profile_.pid = getpid();
    profile_.time = absl::FromUnixSeconds(1700000000);
    profile_.period = kPeriod;
    base::FileDescriptor descriptor(open(program_.c_str(), O_RDONLY | O_CLOEXEC));
    const absl::StatusOr<elf::File> file = elf::File::Open(descriptor.get());
    ASSERT_TRUE(file.ok()) << file.status();
    for (const elf::Segment& segment : file->segments()) {
      if (segment.type != PT_LOAD || (segment.flags & PF_X) == 0) continue;
      const uint64_t start = kBase + segment.address;
      profile_.mappings.push_back({.start = start,
                                   .end = start + segment.file_size,
                                   .file_offset = segment.offset,
                                   .inode = 1,
                                   .path = program_,
                                   .build_id = "a build-id"});
    }
    const uint64_t make_buffer = ReturnInto("jeprof_test_make_buffer");
    const uint64_t serve = ReturnInto("jeprof_test_serve");
    profile_.thread_names = {{41, "main"}, {42, "worker 1"}};
    profile_.contexts = {
        {.frames = {make_buffer, serve},
         .threads = {{.tid = 41, .live = Sampled(10, 4096), .allocated = Sampled(30, 4096)},
                     {.tid = 42, .live = Sampled(1, 64), .allocated = Sampled(2, 64)}}},
        {.frames = {serve}, .threads = {{.tid = 42, .live = Sampled(3, 1 << 20), .allocated = Sampled(3, 1 << 20)}}},
    };
  }

  // A plausible return address of a call at the start of a function.
  uint64_t ReturnInto(const std::string& function) const {
    for (const symbolize::Symbol& symbol : symbolize::FunctionsOf(program_)) {
      if (symbol.name == function) return kBase + symbol.start + 1;
    }
    ADD_FAILURE() << function;
    return 0;
  }

  Output Jeprof(const std::string& options) const {
    reader_.Write("heap", HeapV2(profile_));
    return reader_.Run(absl::StrCat("JEPROF_TMPDIR=. /usr/bin/jeprof ", options, " '", program_, "' heap"));
  }

  // The value in the first column, "flat", of a function; -1 if it is not there.
  static double Flat(const Output& output, absl::string_view function) {
    for (absl::string_view line : absl::StrSplit(output.out, '\n')) {
      std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
      if (words.size() == 6 && words[5] == function) return atof(words[0].c_str());
    }
    return -1;
  }

  // jeprof's messages, without the profile and its progress.
  static void ExpectNoComplaint(const Output& output) {
    EXPECT_EQ(output.status, 0) << output.err;
    EXPECT_THAT(output.err, Not(ContainsRegex("WARNING|Illegal|uninitialized|unknown|rror"))) << output.err;
  }

  Profile profile_;
  Reader reader_;
  std::string program_;
};

TEST_F(JeprofTest, ShowsTheEstimatesOfLiveBytes) {
  Output output = Jeprof("--text --show_bytes");
  ExpectNoComplaint(output);
  double buffers = profile_.contexts[0].Live().bytes;
  // A mix of sizes: whole samples, of which there are 11, are the precision of the format.
  EXPECT_NEAR(Flat(output, "jeprof_test_make_buffer"), buffers, buffers / 22);
  EXPECT_NEAR(Flat(output, "jeprof_test_serve"), profile_.contexts[1].Live().bytes, 1);
}

TEST_F(JeprofTest, ShowsObjectsAndAllThatWasAllocated) {
  Output objects = Jeprof("--text --inuse_objects");
  ExpectNoComplaint(objects);
  EXPECT_NEAR(Flat(objects, "jeprof_test_serve"), profile_.contexts[1].Live().objects, 1);
  Output allocated = Jeprof("--text --show_bytes --alloc_space");
  ExpectNoComplaint(allocated);
  double buffers = profile_.contexts[0].Allocated().bytes;
  EXPECT_NEAR(Flat(allocated, "jeprof_test_make_buffer"), buffers, buffers / 64);
}

TEST_F(JeprofTest, ShowsOneThread) {
  Output output = Jeprof("--text --show_bytes --thread=42");
  ExpectNoComplaint(output);
  EXPECT_THAT(output.out, HasSubstr("(t42)"));
  EXPECT_NEAR(Flat(output, "jeprof_test_make_buffer"), Sampled(1, 64).bytes, 1);
  EXPECT_NEAR(Flat(output, "jeprof_test_serve"), Sampled(3, 1 << 20).bytes, 1);
}

TEST_F(JeprofTest, KnowsCallers) {
  Output output = Jeprof("--collapsed");
  ExpectNoComplaint(output);
  EXPECT_THAT(output.out, ContainsRegex("jeprof_test_serve[^;\n]*;jeprof_test_make_buffer"));
}

TEST_F(JeprofTest, RepeatsWarnings) {
  profile_.warnings = {"12 samples lost: no room in the kernel's books", ""};
  Output output = Jeprof("--text --show_bytes");
  EXPECT_EQ(output.status, 0);
  EXPECT_THAT(output.err, HasSubstr("WARNING: 12 samples lost: no room in the kernel's books\nWARNING: \n"));
  EXPECT_GT(Flat(output, "jeprof_test_serve"), 0);
}

TEST_F(JeprofTest, UnknownCallPathsCountForNoOther) {
  profile_.contexts.push_back({.frames = {}, .threads = {{41, Sampled(2, 1 << 20), Sampled(2, 1 << 20)}}});
  Output output = Jeprof("--text --show_bytes");
  ExpectNoComplaint(output);
  EXPECT_NEAR(Flat(output, "0x7fffffffffffffff"), Sampled(2, 1 << 20).bytes, 1);
  EXPECT_NEAR(Flat(output, "jeprof_test_serve"), Sampled(3, 1 << 20).bytes, 1);
}

TEST_F(JeprofTest, AnEmptyProfileIsNoError) {
  profile_.contexts.clear();
  Output output = Jeprof("--text");
  ExpectNoComplaint(output);
  EXPECT_THAT(output.out, IsEmpty());
}

TEST_F(JeprofTest, SurvivesEverySizeAndPeriod) {
  // The frames are in no file.
  profile_.mappings.clear();
  program_ = "/bin/true";
  for (uint64_t period : {uint64_t{1}, uint64_t{1} << 20, uint64_t{1} << 63}) {
    profile_.period = period;
    profile_.contexts.clear();
    for (double objects : {0.0, 0.2, 1.0, 1e9, 1e25}) {
      for (double bytes : {0.0, 0.2, 8.0, 1e15, 1e25}) {
        Estimate estimate = {1, 1, objects, bytes};
        profile_.contexts.push_back({.frames = {profile_.contexts.size() + 1}, .threads = {{1, estimate, estimate}}});
      }
    }
    ExpectNoComplaint(Jeprof("--text --thread=1"));
    ExpectNoComplaint(Jeprof("--text --alloc_objects"));
  }
}

}  // namespace
}  // namespace heaptap::formats
