// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/large_profile.h"
#include "userspace/formats/gperftools_heap.h"
#include "userspace/formats/heap_v2.h"
#include "userspace/formats/heap_v2_reader.h"
#include "userspace/profile/unbias.h"

namespace heaptap::formats {
namespace {

using profile::Context;
using profile::Estimate;
using profile::Profile;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

Profile MustRead(absl::string_view text) {
  absl::StatusOr<Profile> profile = ReadHeapProfile(text, "test.heap");
  EXPECT_TRUE(profile.ok()) << profile.status();
  return profile.ok() ? *std::move(profile) : Profile();
}

std::string ErrorOf(absl::string_view text) {
  const absl::Status status = ReadHeapProfile(text, "test.heap").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status << "\n" << text;
  return std::string(status.message());
}

constexpr char kThreaded[] =
    "%warn 3 samples were lost\n"
    "heap_v2/1\n"
    "  t*: 5: 5000 [9: 9000]\n"
    "  t7: 5: 5000 [9: 9000] main thread\n"
    "@ 0x400fff 0x402001\n"
    "  t*: 2: 2000 [3: 3000]\n"
    "  t7: 2: 2000 [3: 3000]\n"
    "@ 0x7fffffffffffffff\n"
    "  t*: 3: 3000 [6: 6000]\n"
    "  t7: 3: 3000 [6: 6000]\n"
    "\n"
    "MAPPED_LIBRARIES:\n"
    "00400000-00500000 r-xp 00001000 08:01 1234 /bin/with blanks\n"
    "00500000-00501000 rw-p 00101000 08:01 1234 /bin/with blanks\n"
    "7f0000000000-7f0000001000 r-xp 00000000 00:00 0 [vdso]\n";

constexpr char kGperftools[] =
    "heap profile:      5:     5000 [     9:     9000] @ heap_v2/1\n"
    "     2:     2000 [     3:     3000] @ 0x400fff 0x402001\n"
    "     3:     3000 [     6:     6000] @ 0x7fffffffffffffff\n"
    "\n"
    "MAPPED_LIBRARIES:\n"
    "00400000-00500000 r-xp 00001000 08:01 1234 /bin/with blanks\n"
    "build=/bin\n";

// Samples of one size at one interval, as the recording counts them.
Estimate Samples(uint64_t count, uint64_t size, uint64_t period) {
  const double weight =
      static_cast<double>(size) / -std::expm1(-static_cast<double>(size) / static_cast<double>(period));
  const auto number = static_cast<double>(count);
  return {.samples = count,
          .sampled_bytes = count * size,
          .objects = number * weight / static_cast<double>(size),
          .bytes = number * weight,
          .variance = number * weight * (weight - static_cast<double>(size))};
}

void ExpectNear(const Estimate& read, const Estimate& written) {
  EXPECT_EQ(read.samples, written.samples);
  EXPECT_NEAR(read.objects, written.objects, written.objects * 0.01);
  EXPECT_NEAR(read.bytes, written.bytes, written.bytes * 0.01);
  EXPECT_NEAR(std::sqrt(read.variance), std::sqrt(written.variance), std::sqrt(written.variance) * 0.1 + 1);
}

// The interval was changed, from either one to the other: no estimate is rounded up to a heavy sample, and the numbers
// of samples and their errors are the real ones.
TEST(HeapV2Reader, SamplesOfSeveralIntervals) {
  constexpr uint64_t kLong = 1 << 19;
  constexpr uint64_t kShort = 1 << 14;
  Estimate mixed = Samples(3, 100, kLong);
  mixed += Samples(50, 100, kShort);
  Estimate sizes = Samples(2, 16, kShort);
  sizes += Samples(2, 1 << 20, kShort);
  for (const uint64_t period : {kLong, kShort}) {
    const Profile written = {
        .period = period,
        .contexts = {
            {.frames = {0x11},
             .threads = {{.tid = 7, .live = Samples(5, 100, kLong), .allocated = Samples(9, 100, kLong)}}},
            {.frames = {0x12},
             .threads = {{.tid = 7, .live = Samples(1, 2, kShort), .allocated = Samples(1, 2, kShort)}}},
            {.frames = {0x13},
             .threads = {{.tid = 7, .live = mixed, .allocated = mixed}, {.tid = 9, .allocated = Samples(4, 8, kLong)}}},
            {.frames = {0x14}, .threads = {{.tid = 9, .live = sizes, .allocated = sizes}}}}};
    for (const std::string& text : {HeapV2(written), GperftoolsHeap(written)}) {
      EXPECT_THAT(text, HasSubstr("heap_v2/16384\n"));
      const Profile read = MustRead(text);
      EXPECT_EQ(read.period, period);
      ASSERT_THAT(read.contexts, SizeIs(4));
      for (const Context& context : read.contexts) {
        const Context& same = written.contexts.at(context.frames.at(0) - 0x11);
        ExpectNear(context.Live(), same.Live());
        ExpectNear(context.Allocated(), same.Allocated());
      }
    }
    const absl::StatusOr<Profile> separate = ReadHeapProfile(HeapV2(written), "", ReadThreads::kSeparate);
    ASSERT_TRUE(separate.ok());
    for (const Context& context : separate->contexts) {
      const Context& same = written.contexts.at(context.frames.at(0) - 0x11);
      ASSERT_THAT(context.threads, SizeIs(same.threads.size()));
      for (size_t i = 0; i < context.threads.size(); i++) {
        ExpectNear(context.threads[i].live, same.threads[i].live);
        ExpectNear(context.threads[i].allocated, same.threads[i].allocated);
      }
    }
  }
}

// Whichever the last one was.
TEST(HeapV2Reader, SeveralIntervalsAreSaid) {
  Profile written = {
      .period = 1 << 14,
      .contexts = {
          {.frames = {0x11}, .threads = {{.live = Samples(5, 100, 1 << 14), .allocated = Samples(9, 100, 1 << 14)}}}}};
  EXPECT_FALSE(MustRead(HeapV2(written)).several_periods);
  written.several_periods = true;
  EXPECT_TRUE(MustRead(HeapV2(written)).several_periods);
  EXPECT_TRUE(MustRead(GperftoolsHeap(written)).several_periods);
}

TEST(HeapV2Reader, OneIntervalNeedsNoComments) {
  const Profile written = {
      .period = 1 << 19,
      .contexts = {
          {.frames = {1}, .threads = {{.live = Samples(5, 100, 1 << 19), .allocated = Samples(9, 1 << 30, 1 << 19)}}}}};
  EXPECT_THAT(HeapV2(written), Not(HasSubstr("#")));
}

TEST(HeapV2Reader, PassesOverWrongComments) {
  const Profile plain = MustRead(kThreaded);
  for (const char* comment :
       {"# period 0", "# period x", "# samples 0 t*: 1: 1 [1: 1]", "# samples 3 t*: 1: 1 [1: 1]",
        "# samples 1 t8: 1: 1 [1: 1]", "# samples 1 *: 1: 1 [1: 1]", "# samples 1 t*: 1: 1", "# samples"}) {
    const Profile read = MustRead(
        absl::StrReplaceAll(kThreaded, {{"MAPPED_LIBRARIES:\n", absl::StrCat("MAPPED_LIBRARIES:\n", comment, "\n")}}));
    EXPECT_EQ(read.period, plain.period) << comment;
    EXPECT_EQ(read.Live(), plain.Live()) << comment;
  }
}

TEST(HeapV2Reader, BothForms) {
  for (const char* text : {kThreaded, kGperftools}) {
    const Profile profile = MustRead(text);
    EXPECT_EQ(profile.period, 1);
    ASSERT_THAT(profile.contexts, SizeIs(2));
    EXPECT_THAT(profile.contexts[0].frames, ElementsAre(0x401000, 0x402001)) << "the first becomes a return address";
    EXPECT_THAT(profile.contexts[1].frames, IsEmpty()) << "the mark for an unknown path";
    EXPECT_EQ(profile.contexts[0].Live(), (Estimate{2, 2000, 2, 2000}));
    EXPECT_EQ(profile.contexts[0].Allocated(), (Estimate{3, 3000, 3, 3000}));
    ASSERT_GE(profile.mappings.size(), 1);
    EXPECT_EQ(profile.mappings[0].path, "/bin/with blanks");
    EXPECT_EQ(profile.mappings[0].file_offset, 0x1000);
    EXPECT_EQ(profile.mappings[0].inode, 1234);
  }
  EXPECT_THAT(MustRead(kThreaded).warnings, ElementsAre("3 samples were lost"));
  EXPECT_THAT(MustRead(kThreaded).mappings, SizeIs(2)) << "executable ones";
}

TEST(HeapV2Reader, WithoutMappedLibraries) {
  const std::string text(kThreaded);
  EXPECT_THAT(MustRead(text.substr(0, text.find("\nMAPPED"))).contexts, SizeIs(2));
  EXPECT_THAT(MustRead(text.substr(0, text.find("MAPPED"))).contexts, SizeIs(2));
  EXPECT_THAT(MustRead("heap_v2/524288\n  t*: 0: 0 [0: 0]\n").contexts, IsEmpty());
}

TEST(HeapV2Reader, CommentsOfMappings) {
  const std::string head = "heap_v2/1\n\nMAPPED_LIBRARIES:\n";
  const std::string mapping = "00001000-00003000 r-xp 00000000 08:01 42 /a\n";
  const Profile profile =
      MustRead(head + "# time 2023-11-14T22:13:20.25+00:00\n# build-id 1000 01fe\n" + mapping + "# a word\n");
  EXPECT_EQ(profile.time, absl::FromUnixMillis(1700000000250));
  ASSERT_THAT(profile.mappings, SizeIs(1));
  EXPECT_EQ(profile.mappings[0].build_id, "\x01\xfe");
  // Without such lines, or with broken ones, nothing is known.
  for (const std::string& line :
       {std::string(), std::string("# time yesterday\n"), std::string("# build-id 1000\n"),
        std::string("# build-id 1000 1\n"), std::string("# build-id 1000 xy\n"), std::string("# build-id 2000 01\n"),
        std::string("# build-id 1000 ") + std::string(1000, '0') + "\n", std::string("#\n")}) {
    const Profile without = MustRead(head + line + mapping);
    EXPECT_EQ(without.time, std::nullopt) << line;
    ASSERT_THAT(without.mappings, SizeIs(1)) << line;
    EXPECT_THAT(without.mappings[0].build_id, IsEmpty()) << line;
  }
}

TEST(HeapV2Reader, CorrectsForSamplingAsJeprofDoes) {
  const Profile profile = MustRead("heap_v2/524288\n  t*: 0: 0 [0: 0]\n@ 0x1\n  t*: 10: 40960 [0: 0]\n");
  const double scale = 1 / (1 - std::exp(-(40960.0 / 10) / 524288));
  EXPECT_NEAR(profile.Live().objects, 10 * scale, 1e-6);
  EXPECT_NEAR(profile.Live().bytes, 40960 * scale, 1e-3);
  EXPECT_EQ(profile.Live().samples, 10);
  EXPECT_EQ(profile.Live().sampled_bytes, 40960);
  const Profile exact = MustRead("heap profile: 1: 8 [1: 8] @ heapprofile\n1: 8 [1: 8] @ 0x1\n");
  EXPECT_EQ(exact.Live(), (Estimate{1, 8, 1, 8})) << "not sampled";
}

TEST(HeapV2Reader, CountsThatReadersDivideByAreNoTrouble) {
  for (const char* counts : {"5: 0 [0: 7]", "18446744073709551615: 1 [1: 18446744073709551615]",
                             "18446744073709551615: 18446744073709551615 [0: 0]"}) {
    for (const char* period : {"1", "524288", "18446744073709551615"}) {
      const Profile profile = MustRead(absl::StrCat("heap_v2/", period, "\n@ 0x1\n  t*: ", counts, "\n"));
      EXPECT_TRUE(std::isfinite(profile.Live().bytes) && std::isfinite(profile.Live().objects))
          << counts << " " << period;
      EXPECT_TRUE(std::isfinite(profile.Allocated().bytes)) << counts << " " << period;
    }
  }
}

TEST(HeapV2Reader, CutStacks) {
  const Profile profile = MustRead(
      "heap_v2/1\n@ 0x1 0x2\n  t*: 1: 1000 [1: 1000]\n@ 0x3\n  t*: 1: 1 [1: 1]\n\nMAPPED_LIBRARIES:\n# cut 0\n# cut 2\n"
      "# cut 3\n# cut x\n");
  ASSERT_THAT(profile.contexts, SizeIs(2));
  EXPECT_FALSE(profile.contexts[0].truncated);
  EXPECT_TRUE(profile.contexts[1].truncated);
}

TEST(HeapV2Reader, OneStackTwice) {
  const Profile profile = MustRead(
      "heap_v2/1\n@ 0x1 0x2\n  t*: 1: 1000 [1: 1000]\n@ 0x3\n  t*: 1: 1 [1: 1]\n@ 0x1 0x2\n  t*: 2: 2000 [4: 4000]\n");
  ASSERT_THAT(profile.contexts, SizeIs(2));
  EXPECT_EQ(profile.contexts[0].Live(), (Estimate{3, 3000, 3, 3000}));
  EXPECT_EQ(profile.contexts[0].Allocated(), (Estimate{5, 5000, 5, 5000}));
}

TEST(HeapV2Reader, ReadsWhatTheWritersWrite) {
  const Profile profile = {
      .period = 524288,
      .contexts = {{.frames = {0x401000, 0x402001},
                    .threads = {{.tid = 7, .live = {10, 40960, 1285.5, 5265408}, .allocated = {20, 81920, 2571, 1e7}},
                                {.tid = 8, .live = {1, 1 << 20, 1.2, 1.2e6}, .allocated = {1, 1 << 20, 1.2, 1.2e6}}}},
                   {.frames = {0x401000}, .threads = {{.tid = 7, .allocated = {3, 30, 3e5, 3e6}}}},
                   {.frames = {}, .threads = {{.tid = 9, .live = {1, 1, 524288, 524288}}}}},
      .mappings = {{.start = 0x400000, .end = 0x500000, .file_offset = 4096, .inode = 5, .path = "/bin/x"}},
      .thread_names = {{7, "x\n@ 0x1"}},
      .warnings = {"a\nb"}};
  for (const auto write : {HeapV2, GperftoolsHeap}) {
    const Profile read = MustRead(write(profile));
    EXPECT_EQ(read.period, profile.period);
    EXPECT_EQ(read.mappings, profile.mappings);
    EXPECT_THAT(read.warnings, ElementsAre("a\\012b"));
    ASSERT_THAT(read.contexts, SizeIs(3));
    // The writers put the largest first, as here; numbers in dumps are whole.
    const size_t order[] = {0, 2, 1};
    for (size_t i = 0; i < 3; i++) {
      const Context& context = profile.contexts[order[i]];
      EXPECT_EQ(read.contexts[i].frames, context.frames);
      for (const auto& [now, then] : {std::pair(read.contexts[i].Live(), context.Live()),
                                      std::pair(read.contexts[i].Allocated(), context.Allocated())}) {
        const profile::BiasedCount written = profile::Bias(then.objects, then.bytes, profile.period);
        EXPECT_EQ(now.samples, then.samples);
        EXPECT_EQ(now.bytes, profile::Unbias(written, profile.period).bytes);
        EXPECT_EQ(now.objects, profile::Unbias(written, profile.period).objects);
      }
    }
  }
}

TEST(HeapV2Reader, LargeDumps) {
  const std::string texts[] = {HeapV2(LargeProfiles()[0]), HeapV2(LargeProfiles()[1])};
  ExpectLinear([&](size_t which) {
    EXPECT_THAT(MustRead(texts[which]).contexts, SizeIs(LargeProfiles()[which].contexts.size()));
  });
}

TEST(HeapV2Reader, NamesTheLineAndWhatIsWrong) {
  const std::string text(kThreaded);
  EXPECT_THAT(ErrorOf(absl::StrReplaceAll(text, {{"t*: 2: 2000", "t*: 2: -2000"}})),
              AllOf(StartsWith("test.heap:6: "), HasSubstr("t*: 2: -2000")));
  EXPECT_THAT(ErrorOf(""), HasSubstr("empty"));
  EXPECT_THAT(ErrorOf("\x1f\x8b\x08"), HasSubstr("compressed"));
  EXPECT_THAT(ErrorOf("\x7f"
                      "ELF\x1b[2J\n"),
              AllOf(StartsWith("test.heap:1: "), HasSubstr("\\177ELF\\033[2J")));
}

TEST(HeapV2Reader, RefusesWhatIsNoDump) {
  const std::string head = "heap_v2/1\n  t*: 1: 1 [1: 1]\n";
  for (const std::string& text : {std::string("heap_v2/\n"),
                                  std::string("heap_v2/0\n"),
                                  std::string("heap_v2/-1\n"),
                                  std::string("heap_v2/1 \n"),
                                  std::string("heap_v2/18446744073709551616\n"),
                                  std::string("heap_v3/1\n"),
                                  std::string("%warn x\n"),
                                  std::string("heap_v2/1"),
                                  head + "@ 0x1\n",
                                  head + "@ 0x1\n@ 0x2\n  t*: 1: 1 [1: 1]\n",
                                  head + "@ 0x1\n  t7: 1: 1 [1: 1]\n",
                                  head + "@ 0x1\n  t*: 1: 1 [1: 1]\n  t*: 1: 1 [1: 1]\n",
                                  head + "@ 0x1\n  t*: 18446744073709551616: 1 [1: 1]\n",
                                  head + "@ 0x1\n  t*: 1: 1 [1: 1\n",
                                  head + "@ 0x1\n  t*: 1: 1\n",
                                  head + "@ 0x1\n  t*: 1: 1 [1: 1]x\n",
                                  head + "@ 0x1\n  t*: +1: 1 [1: 1]\n",
                                  head + "@ 0x1\n  t*: 0x1: 1 [1: 1]\n",
                                  head + "@ 0x1\n  t*: 1.5: 1 [1: 1]\n",
                                  head + "@ 0x1\n  t: 1: 1 [1: 1]\n",
                                  head + "@ 0x\n  t*: 1: 1 [1: 1]\n",
                                  head + "@ 1\n  t*: 1: 1 [1: 1]\n",
                                  head + "@ -0x1\n  t*: 1: 1 [1: 1]\n",
                                  head + "@ 0x10000000000000000\n  t*: 1: 1 [1: 1]\n",
                                  head + "@ 0x1,0x2\n  t*: 1: 1 [1: 1]\n",
                                  head + "@0x1\n  t*: 1: 1 [1: 1]\n",
                                  head + "\nMAPPED\n",
                                  head + "\nMAPPED_LIBRARIES:\nx\n",
                                  head + "\nMAPPED_LIBRARIES:\n2000-1000 r-xp 0 8:1 1 /x\n",
                                  std::string("heap profile: 1: 1 [1: 1]\n"),
                                  std::string("heap profile: 1: 1 [1: 1] @ heap/1\n"),
                                  std::string("heap profile: 1: 1 [1: 1] @ heap_v2/1\n@ 0x1\n"),
                                  std::string("heap profile: 1: 1 [1: 1] @ heap_v2/1\n1: 1 [1: 1] 0x1\n")}) {
    EXPECT_THAT(ErrorOf(text), StartsWith("test.heap:"));
  }
}

// A file that ends within a line is refused; one that ends between stacks is valid, with fewer of them.
TEST(HeapV2Reader, CutOffAnywhere) {
  for (const std::string text : {kThreaded, kGperftools}) {
    for (size_t size = 1; size < text.size(); size++) {
      if (text[size - 1] == '\n') continue;
      EXPECT_THAT(ErrorOf(text.substr(0, size)), StartsWith("test.heap:"));
    }
  }
}

TEST(HeapV2Reader, IsBounded) {
  std::string stack = "heap_v2/1\n@";
  for (size_t i = 0; i < kMaxReadFrames; i++) absl::StrAppend(&stack, " 0x", absl::Hex(i + 1));
  EXPECT_THAT(MustRead(absl::StrCat(stack, "\n  t*: 1: 1 [1: 1]\n")).contexts[0].frames, SizeIs(kMaxReadFrames));
  EXPECT_THAT(ErrorOf(absl::StrCat(stack, " 0x1\n  t*: 1: 1 [1: 1]\n")), HasSubstr("test.heap:2: more than 1024"));
  std::string mappings = "heap_v2/1\n\nMAPPED_LIBRARIES:\n";
  for (size_t i = 1; i <= 2 * elf::kMaxMappings; i++) {
    absl::StrAppend(&mappings, absl::Hex(i << 13), "-", absl::Hex((i << 13) + 4096), " r-xp 0 8:1 1 /x\n");
  }
  EXPECT_THAT(ErrorOf(mappings), HasSubstr("mappings"));
}

TEST(HeapV2ReaderTest, ThreadsAddUp) {
  const auto read = [](absl::string_view text) {
    absl::StatusOr<Profile> profile = ReadHeapProfile(text, "test.heap", ReadThreads::kSeparate);
    EXPECT_TRUE(profile.ok()) << profile.status();
    return profile.ok() ? *std::move(profile) : Profile();
  };
  // Mean sizes differ, so that lines corrected separately do not add up.
  constexpr char kText[] =
      "heap_v2/1024\n"
      "  t*: 3: 3000 [5: 9000]\n"
      "  t7: 2: 200 [2: 200] main thread\n"
      "  t9: 1: 2800 [3: 8800]\n"
      "@ 0x400fff 0x402001\n"
      "  t*: 3: 3000 [5: 9000]\n"
      "  t9: 1: 2800 [3: 8800]\n"
      "  t7: 2: 200 [2: 200]\n"
      "@ 0x1000\n"
      "  t*: 1: 10 [1: 10]\n"
      "\nMAPPED_LIBRARIES:\n";
  const Profile profile = read(kText);
  EXPECT_EQ(profile.thread_names, (std::map<uint32_t, std::string>{{7, "main thread"}, {9, ""}}));
  ASSERT_THAT(profile.contexts, SizeIs(2));
  const Context& context = profile.contexts[0];
  ASSERT_THAT(context.threads, SizeIs(2));
  EXPECT_EQ(context.threads[0].tid, 7u);
  EXPECT_EQ(context.threads[1].tid, 9u);
  EXPECT_EQ(context.threads[0].live.samples, 2u);
  const Profile sums = MustRead(kText);
  EXPECT_NEAR(context.Live().bytes, sums.contexts[0].Live().bytes, 1e-6);
  EXPECT_NEAR(context.Live().objects, sums.contexts[0].Live().objects, 1e-6);
  EXPECT_NEAR(context.Allocated().bytes, sums.contexts[0].Allocated().bytes, 1e-6);
  // Small objects stand for more.
  EXPECT_GT(context.threads[0].live.objects, 10 * context.threads[1].live.objects);
  // A stack without lines of threads keeps its sum.
  EXPECT_EQ(profile.contexts[1].threads, sums.contexts[1].threads);
  EXPECT_THAT(read(kGperftools).thread_names, IsEmpty());
  EXPECT_THAT(MustRead(kText).thread_names, IsEmpty());
}

}  // namespace
}  // namespace heaptap::formats
