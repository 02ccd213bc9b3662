// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "userspace/daemon/unserved.h"
#include "userspace/elf/mappings.h"
#include "userspace/process/start_facts.h"

namespace heaptap::daemon {
namespace {

elf::Mapping File(uint64_t start, uint64_t inode, const std::string& path) {
  return {.start = start, .end = start + 0x1000, .inode = inode, .path = path};
}

const process::StartFacts kPreloaded = {.preload = "/usr/lib/other.so:/opt/libheaptap.so"};
const elf::Mapping kProgram = File(0x400000, 1, "/bin/program");
const elf::Mapping kLinker = File(0x7f0000000000, 2, "/lib64/ld-linux-x86-64.so.2");
const elf::Mapping kVdso = {.start = 0x7fff00000000, .end = 0x7fff00001000, .path = "[vdso]"};

TEST(Unserved, StaticPrograms) { EXPECT_EQ(WhyUnserved(kPreloaded, {kProgram, kVdso}), "it is statically linked"); }

TEST(Unserved, ProgramsWithTheLibrary) {
  EXPECT_EQ(WhyUnserved(kPreloaded, {kProgram, kLinker, File(0x7f1000000000, 3, "/opt/libheaptap.so"), kVdso}), "");
  // What LD_PRELOAD names may be a link to another version, or to the guest.
  EXPECT_EQ(WhyUnserved(kPreloaded, {kProgram, kLinker, File(0x7f1000000000, 3, "/opt/libheaptap-guest.so")}), "");
}

TEST(Unserved, ProgramsOfWhichNobodyHasAskedIt) {
  EXPECT_EQ(WhyUnserved({}, {kProgram, kVdso}), "");
  EXPECT_EQ(WhyUnserved({.preload = "/opt/heaptap/other.so"}, {kProgram, kVdso}), "");
}

TEST(Unserved, OtherReasons) {
  EXPECT_EQ(WhyUnserved({.is_secure = true, .preload = "libheaptap.so"}, {kProgram, kLinker}),
            "it is set-user-ID or has capabilities of its own");
  EXPECT_EQ(WhyUnserved(kPreloaded, {kProgram, File(0xf7000000, 2, "/lib/ld-linux.so.2")}), "it is a 32-bit program");
  EXPECT_EQ(WhyUnserved(kPreloaded, {kProgram, kLinker}), "its dynamic linker did not load the library");
}

TEST(Unserved, AProcessThatHasEnded) { EXPECT_EQ(WhyUnserved(kPreloaded, {}), ""); }

}  // namespace
}  // namespace heaptap::daemon
