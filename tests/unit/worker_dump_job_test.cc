// SPDX-License-Identifier: Apache-2.0
//
// Tests the job of a reader on a dump: what it answers is what the parser says, and an answer of a reader that was
// taken over is refused.
#include <fcntl.h>

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/folder.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/crews/crew.h"
#include "userspace/worker/dump_job.h"
#include "userspace/worker/packet.h"

namespace heaptap::worker {
namespace {

using formats::Dump;
using formats::ReadThreads;
using ::testing::HasSubstr;

constexpr char kText[] =
    "--- symbol\nbinary=/bin/program\n0x1fff inner--outer\n0x2fff other\n---\n--- heap\n"
    "heap_v2/4096\n  t*: 3: 3000 [6: 9000]\n  t7: 1: 1000 [2: 3000] name\n"
    "@ 0x1fff 0x2fff\n  t*: 2: 2000 [4: 6000]\n  t7: 1: 1000 [2: 3000]\n  t9: 1: 1000 [2: 3000]\n"
    "@\n  t*: 1: 1000 [2: 3000]\n  t9: 1: 1000 [2: 3000]\n"
    "\nMAPPED_LIBRARIES:\n00001000-00009000 r-xp 00000000 08:01 7 /bin/program (deleted)\n";

std::string Encode(const Dump& dump) {
  std::string bytes;
  EncodeDump(dump, [&](absl::string_view part) { bytes.append(part.data(), part.size()); });
  return bytes;
}

void ExpectSame(const Dump& a, const Dump& b) {
  EXPECT_EQ(a.profile.pid, b.profile.pid);
  EXPECT_EQ(a.profile.period, b.profile.period);
  EXPECT_EQ(a.profile.raw, b.profile.raw);
  EXPECT_EQ(a.profile.several_periods, b.profile.several_periods);
  ASSERT_EQ(a.profile.contexts.size(), b.profile.contexts.size());
  for (size_t i = 0; i < a.profile.contexts.size(); i++) {
    EXPECT_EQ(a.profile.contexts[i].frames, b.profile.contexts[i].frames);
    EXPECT_EQ(a.profile.contexts[i].truncated, b.profile.contexts[i].truncated);
    EXPECT_EQ(a.profile.contexts[i].threads, b.profile.contexts[i].threads);
    EXPECT_EQ(a.profile.contexts[i].blocks, b.profile.contexts[i].blocks);
  }
  EXPECT_EQ(a.profile.mappings, b.profile.mappings);
  EXPECT_EQ(a.profile.thread_names, b.profile.thread_names);
  EXPECT_EQ(a.profile.stack_ends.samples, b.profile.stack_ends.samples);
  EXPECT_EQ(a.profile.stack_ends.without_stack, b.profile.stack_ends.without_stack);
  EXPECT_EQ(a.profile.warnings, b.profile.warnings);
  EXPECT_EQ(a.profile.time, b.profile.time);
  ASSERT_EQ(a.symbols.size(), b.symbols.size());
  for (const auto& [address, frames] : a.symbols) {
    const auto found = b.symbols.find(address);
    ASSERT_NE(found, b.symbols.end());
    ASSERT_EQ(frames.size(), found->second.size());
    for (size_t i = 0; i < frames.size(); i++) {
      EXPECT_EQ(frames[i].function, found->second[i].function);
      EXPECT_EQ(frames[i].linkage_name, found->second[i].linkage_name);
      EXPECT_EQ(frames[i].file, found->second[i].file);
      EXPECT_EQ(frames[i].line, found->second[i].line);
    }
  }
}

// With a value in every field.
Dump Whole() {
  Dump dump = {.profile = {.pid = 42,
                           .period = 1 << 19,
                           .several_periods = true,
                           .raw = true,
                           .contexts = {{.frames = {1, ~uint64_t{0}},
                                         .truncated = true,
                                         .threads = {{.tid = 1, .live = {1, 2, 3.5, -4.5}, .allocated = {5, 6, 7, 8}},
                                                     {.tid = 9, .live = {}, .allocated = {1, 1, 1e300, 1}}},
                                         .blocks = {{.tid = 1, .size = 16, .age = 60, .live = {1, 2, 3.5, -4.5}},
                                                    {.tid = 1, .size = 16, .age = profile::kUnknownAge}}},
                                        {}},
                           .thread_names = {{1, "one"}, {9, std::string("\0\xff", 2)}},
                           .warnings = {"a", "b"},
                           .time = absl::FromUnixNanos(1700000000000000001)}};
  dump.profile.mappings = {{.start = 1,
                            .end = 2,
                            .file_offset = 3,
                            .device_major = 4,
                            .device_minor = 5,
                            .inode = 6,
                            .path = "/a",
                            .deleted = true,
                            .build_id = "id"},
                           {.start = 2, .end = 4}};
  dump.profile.stack_ends.samples.back() = 7;
  dump.profile.stack_ends.without_stack = 8;
  dump.symbols = {{5, {{.function = "f", .linkage_name = "_f", .file = "f.c", .line = 10}, {.function = "g"}}},
                  {6, {}}};
  return dump;
}

absl::StatusOr<Crew*> Reader() {
  static auto* const crew = new absl::StatusOr<std::unique_ptr<Crew>>(Crew::Start(Urgency::kForeground));
  if (!crew->ok()) return crew->status();
  return (*crew)->get();
}

Answer Ask(absl::string_view bytes, ReadThreads threads = ReadThreads::kSeparate) {
  const absl::StatusOr<base::FileDescriptor> file = PutInFile(bytes);
  return (*Reader())->Do({.job = Job::kDump, .file = {.fd = file->get()}, .question = DumpQuestion("x.heap", threads)},
                         {});
}

TEST(DumpJob, AnswersWhatTheParserSays) {
  for (const ReadThreads threads : {ReadThreads::kSum, ReadThreads::kSeparate}) {
    const Answer answer = Ask(kText, threads);
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    const absl::StatusOr<Dump> dump = DecodeDump(answer.bytes);
    ASSERT_TRUE(dump.ok()) << dump.status();
    const absl::StatusOr<Dump> expected = formats::ReadDump(kText, "x.heap", threads);
    ASSERT_TRUE(expected.ok());
    ASSERT_EQ(expected->symbols.size(), 2u);
    ExpectSame(*dump, *expected);
  }
}

TEST(DumpJob, PassesErrorsOn) {
  for (const absl::string_view text : {"", "nonsense", "heap_v2/4096\nnonsense", "\x1f\x8b\x08"}) {
    const Answer answer = Ask(text);
    EXPECT_EQ(answer.status, formats::ReadDump(text, "x.heap", ReadThreads::kSum).status());
    EXPECT_THAT(answer.status.message(), HasSubstr("x.heap"));
  }
}

TEST(DumpJob, FileThatIsNotThere) {
  const base::FileDescriptor folder(open("/", O_RDONLY | O_CLOEXEC));
  const Answer answer =
      (*Reader())->Do({.job = Job::kDump, .file = {.fd = folder.get()}, .question = DumpQuestion("/", {})}, {});
  EXPECT_FALSE(answer.status.ok());
  EXPECT_FALSE(answer.IsFault()) << answer.status;
}

TEST(DumpAnswer, HasEveryField) {
  const Dump dump = Whole();
  const absl::StatusOr<Dump> decoded = DecodeDump(Encode(dump));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ExpectSame(*decoded, dump);
}

// The reader may die at any time, and be told anything.
TEST(DumpAnswer, CutAndDamaged) {
  const std::string bytes = Encode(Whole());
  for (size_t size = 0; size < bytes.size(); size++) DecodeDump(bytes.substr(0, size)).status().IgnoreError();
  for (size_t at = 0; at < bytes.size(); at++) {
    for (const char value : {'\0', '\x7f', '\xff'}) {
      std::string bad = bytes;
      bad[at] = value;
      DecodeDump(bad).status().IgnoreError();
    }
  }
}

TEST(DumpAnswer, WhatProfilesPromise) {
  const auto expect_wrong = [](const char* what, auto change) {
    Dump dump = Whole();
    change(dump.profile);
    EXPECT_TRUE(absl::IsInvalidArgument(DecodeDump(Encode(dump)).status())) << what;
  };
  constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  expect_wrong("a path twice", [](profile::Profile& p) { p.contexts.push_back({.frames = p.contexts[0].frames}); });
  expect_wrong("threads in another order", [](profile::Profile& p) { p.contexts[0].threads[1].tid = 1; });
  expect_wrong("no number", [](profile::Profile& p) { p.contexts[0].threads[1].live.bytes = kNoNumber; });
  expect_wrong("infinity", [](profile::Profile& p) { p.contexts[0].threads[1].allocated.objects = kInfinity; });
  expect_wrong("blocks in another order", [](profile::Profile& p) { p.contexts[0].blocks[1].size = 1; });
  expect_wrong("no age", [](profile::Profile& p) { p.contexts[0].blocks[0].age = 61; });
  expect_wrong("blocks without a number", [](profile::Profile& p) { p.contexts[0].blocks[0].live.bytes = kNoNumber; });
  expect_wrong("many frames", [](profile::Profile& p) { p.contexts[0].frames.resize(formats::kMaxReadFrames + 1); });
  expect_wrong("an empty mapping", [](profile::Profile& p) { p.mappings[0].end = 0; });
  expect_wrong("many warnings", [](profile::Profile& p) { p.warnings.resize(kMaxDumpWarnings + 1); });
}

}  // namespace
}  // namespace heaptap::worker
