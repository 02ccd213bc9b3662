// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/doctor/allocator_advice.h"

namespace heaptap::daemon {
namespace {

using process::MallocKind;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kGuest[] = "/lib/libheaptap-guest.so";
constexpr char kAllocator[] = "/lib/libheaptap.so";

CodeFile Library(const std::string& path, MallocKind kind) {
  return {.path = path, .traits = {.exports_malloc = 1, .kind = kind}};
}

// A dynamically linked program over glibc.
Evidence Plain() {
  return {.program = "/bin/server",
          .command = "server",
          .files = {{.path = "/bin/server", .traits = {.has_interpreter = 1}, .is_program = true},
                    Library("/lib/libc.so.6", MallocKind::kGlibc)},
          .start = {.arguments = {"server", "-c", "a b"}},
          .allocator = kAllocator,
          .guest = kGuest};
}

TEST(AllocatorAdvice, Glibc) {
  const Evidence evidence = Plain();
  EXPECT_EQ(AllocatorInUse(evidence), "glibc (/lib/libc.so.6)");
  EXPECT_EQ(HowToProfile(evidence),
            "to keep glibc: heaptap run --guest -- server -c 'a b', or LD_PRELOAD=/lib/libheaptap-guest.so server -c "
            "'a b' and then heaptap attach; for heaptap's own allocator: LD_PRELOAD=/lib/libheaptap.so");
}

TEST(AllocatorAdvice, Sanitizers) {
  Evidence shared = Plain();
  shared.files.insert(shared.files.begin() + 1, Library("/lib/libasan.so.8", MallocKind::kAddressSanitizer));
  EXPECT_EQ(AllocatorInUse(shared), "AddressSanitizer (/lib/libasan.so.8)");
  EXPECT_EQ(
      HowToProfile(shared),
      "to keep AddressSanitizer: ASAN_OPTIONS=verify_asan_link_order=0 heaptap run --guest -- server -c 'a b', or "
      "ASAN_OPTIONS=verify_asan_link_order=0 LD_PRELOAD=/lib/libheaptap-guest.so server -c 'a b' and then heaptap "
      "attach");
  shared.files[1] = Library("/lib/libtsan.so.2", MallocKind::kThreadSanitizer);
  EXPECT_EQ(HowToProfile(shared),
            "the program has ThreadSanitizer, with which no library of heaptap can run: build it without");
  shared.files[1] = Library("/lib/liblsan.so.0", MallocKind::kLeakSanitizer);
  EXPECT_THAT(HowToProfile(shared), HasSubstr("own allocator")) << "it lets another one take its place";

  Evidence linked = Plain();
  linked.files[0].traits = {.has_interpreter = 1, .exports_malloc = 1, .kind = MallocKind::kMemorySanitizer};
  EXPECT_EQ(AllocatorInUse(linked), "MemorySanitizer, in the program itself");
  EXPECT_EQ(
      HowToProfile(linked),
      "the program has MemorySanitizer, and no preloaded library takes the place of its malloc: build it without");
}

// Of such a process nothing else is known for certain: what the kernel tells of its start has another form.
TEST(AllocatorAdvice, A32BitProgram) {
  Evidence evidence = Plain();
  evidence.files.clear();
  evidence.start.is_secure = true;
  evidence.foreign = "it is a 32-bit program";
  EXPECT_EQ(HowToProfile(evidence), "it is a 32-bit program, and heaptap records 64-bit programs for x86-64 only");
}

TEST(AllocatorAdvice, AnAllocatorThatIsLinked) {
  Evidence evidence = Plain();
  for (const MallocKind kind : {MallocKind::kJemalloc, MallocKind::kTcmalloc, MallocKind::kMimalloc}) {
    evidence = Plain();
    evidence.files.insert(evidence.files.begin() + 1, Library("/lib/libx.so", kind));
    const std::string name = process::MallocKindName(kind);
    EXPECT_EQ(AllocatorInUse(evidence), name + " (/lib/libx.so)");
    EXPECT_THAT(HowToProfile(evidence), StartsWith("to keep " + name + ": heaptap run --guest -- server"));
  }
  evidence.files[1].traits.kind = MallocKind::kOther;
  EXPECT_EQ(AllocatorInUse(evidence), "unknown (/lib/libx.so)");
  EXPECT_THAT(HowToProfile(evidence), StartsWith("to keep the allocator of libx.so: "));
}

// It stays behind the guest, and a library of heaptap in a wrong place is left out.
TEST(AllocatorAdvice, AnAllocatorThatIsPreloaded) {
  Evidence evidence = Plain();
  evidence.files.insert(evidence.files.begin() + 1, Library("/lib/libjemalloc.so.2", MallocKind::kJemalloc));
  evidence.files.insert(evidence.files.begin() + 1, Library("/lib/libother.so", MallocKind::kOther));
  evidence.files.push_back(Library(kGuest, MallocKind::kOther));
  evidence.files.back().is_heaptap = true;
  evidence.start.preload = "libother.so.9:/opt/libother.so:/x/libheaptap-guest.so libjemalloc.so.2";
  EXPECT_EQ(AllocatorInUse(evidence), "unknown (/lib/libother.so)");
  const std::string behind = "libother.so.9:/opt/libother.so:libjemalloc.so.2";
  EXPECT_THAT(HowToProfile(evidence), HasSubstr("LD_PRELOAD=" + behind + " heaptap run --guest"));
  EXPECT_THAT(HowToProfile(evidence), HasSubstr("LD_PRELOAD=/lib/libheaptap-guest.so:" + behind + " server"));
  EXPECT_THAT(HowToProfile(evidence), Not(HasSubstr("/x/")));
}

TEST(AllocatorAdvice, WhatPreloadingDoesNotReach) {
  Evidence is_static = Plain();
  is_static.files = {
      {.path = "/bin/server", .traits = {.has_own_malloc = 1, .kind = MallocKind::kGlibc}, .is_program = true}};
  EXPECT_EQ(AllocatorInUse(is_static), "glibc, in the program, which is statically linked");
  Evidence own = Plain();
  own.files[0].traits.exports_malloc = 1;
  own.files[0].traits.kind = MallocKind::kJemalloc;
  EXPECT_EQ(AllocatorInUse(own), "jemalloc, in the program itself");
  Evidence hidden = Plain();
  hidden.files[0].traits.has_own_malloc = 1;
  EXPECT_EQ(AllocatorInUse(hidden), "its own, in the program itself");
  Evidence secure = Plain();
  secure.start.is_secure = true;
  for (const Evidence& evidence : {is_static, own, hidden, secure}) {
    const std::string advice = HowToProfile(evidence);
    for (const char* part : {"libheaptap-guest.a", "-Wl,--wrap", "heaptap/sample.h"})
      EXPECT_THAT(advice, HasSubstr(part));
    EXPECT_THAT(advice, Not(HasSubstr("LD_PRELOAD=")));
  }
  EXPECT_THAT(HowToProfile(is_static), StartsWith("the program is statically linked"));
  EXPECT_THAT(HowToProfile(own), StartsWith("the program has an allocator of its own"));
  EXPECT_THAT(HowToProfile(secure), StartsWith("the program is set-user-ID"));
}

TEST(AllocatorAdvice, Musl) {
  Evidence evidence = Plain();
  evidence.files[1] = Library("/lib/ld-musl-x86_64.so.1", MallocKind::kMusl);
  EXPECT_EQ(AllocatorInUse(evidence), "musl (/lib/ld-musl-x86_64.so.1)");
  EXPECT_THAT(HowToProfile(evidence), StartsWith("to keep musl: heaptap run --guest -- server"));
  // An allocator that is linked, whichever of the two is mapped first.
  evidence.files.push_back(Library("/lib/libx.so", MallocKind::kJemalloc));
  EXPECT_EQ(AllocatorInUse(evidence), "jemalloc (/lib/libx.so)");
  std::swap(evidence.files[1], evidence.files[2]);
  EXPECT_EQ(AllocatorInUse(evidence), "jemalloc (/lib/libx.so)");
}

TEST(AllocatorAdvice, Go) {
  Evidence evidence = Plain();
  evidence.files[0].traits.is_go = 1;
  EXPECT_EQ(AllocatorInUse(evidence), "Go's own, which is not a malloc; its C code uses glibc");
  EXPECT_THAT(HowToProfile(evidence), HasSubstr("heaptap run --guest"));
  evidence.files = {{.path = "/bin/server", .traits = {.is_go = 1}, .is_program = true}};
  EXPECT_EQ(AllocatorInUse(evidence), "Go's own, which is not a malloc");
  EXPECT_THAT(HowToProfile(evidence), HasSubstr("runtime/pprof"));
  EXPECT_THAT(HowToProfile(evidence), Not(HasSubstr("LD_PRELOAD")));
}

TEST(AllocatorAdvice, AContainer) {
  Evidence evidence = Plain();
  evidence.start.has_other_mounts = true;
  EXPECT_THAT(HowToProfile(evidence), HasSubstr("the library must be there too"));
}

// Servers write a title over their arguments, scripts have the path of their interpreter, and /proc may be empty.
TEST(AllocatorAdvice, TheCommandAsItWasTyped) {
  Evidence evidence = Plain();
  const auto advises = [&evidence](const std::string& command) {
    return HowToProfile(evidence).find("--guest -- " + command + ",") != std::string::npos;
  };
  evidence.start.arguments = {"server *:0", "", ""};
  EXPECT_TRUE(advises("server ...")) << HowToProfile(evidence);
  evidence.start.arguments = {"server: writer"};
  EXPECT_TRUE(advises("/bin/server ...")) << HowToProfile(evidence);
  evidence.start.arguments = {"/usr/bin/python3", "x.py"};
  EXPECT_TRUE(advises("/bin/server x.py")) << HowToProfile(evidence);
  evidence.start.arguments = {};
  EXPECT_TRUE(advises("/bin/server")) << HowToProfile(evidence);
  evidence.start.arguments = {"./server", "\x1b[31m"};
  EXPECT_TRUE(advises("./server '?[31m'")) << HowToProfile(evidence);
}

TEST(AllocatorAdvice, NothingIsKnown) {
  EXPECT_THAT(AllocatorInUse({}), StartsWith("none is known"));
  EXPECT_THAT(HowToProfile({}), StartsWith("to keep its allocator: "));
}

}  // namespace
}  // namespace heaptap::daemon
