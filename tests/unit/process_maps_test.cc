// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/child.h"
#include "tests/unit/support/folder.h"
#include "userspace/elf/mappings.h"
#include "userspace/process/maps.h"

namespace heaptap::process {
namespace {

using elf::Mapping;
using elf::ParseMaps;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(ParseMaps, ExecutableOnesOnly) {
  auto mappings = ParseMaps(
      "55d0c0000000-55d0c0001000 r--p 00000000 fe:01 1234                       /usr/bin/app\n"
      "55d0c0001000-55d0c0002000 r-xp 00001000 fe:01 1234                       /usr/bin/app\n"
      "7fff00000000-7fff00002000 rwxs 00000000 00:00 0 \n"
      "7fff10000000-7fff10002000 --xp 00000000 00:00 0                          [vdso]\n"
      "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n");
  ASSERT_TRUE(mappings.ok()) << mappings.status();
  ASSERT_THAT(*mappings, SizeIs(4));
  EXPECT_EQ((*mappings)[0], (Mapping{.start = 0x55d0c0001000,
                                     .end = 0x55d0c0002000,
                                     .file_offset = 0x1000,
                                     .device_major = 0xfe,
                                     .device_minor = 1,
                                     .inode = 1234,
                                     .path = "/usr/bin/app",
                                     .deleted = false}));
  EXPECT_EQ((*mappings)[1].path, "");
  EXPECT_EQ((*mappings)[2].path, "[vdso]");
  EXPECT_EQ((*mappings)[3].start, 0xffffffffff600000);
}

Mapping OnlyOne(absl::string_view path) {
  auto mappings = ParseMaps(absl::StrCat("1000-2000 r-xp 0 0:0 7 ", path, "\n"));
  EXPECT_TRUE(mappings.ok()) << mappings.status();
  return mappings.ok() && mappings->size() == 1 ? mappings->front() : Mapping();
}

TEST(ParseMaps, OddPaths) {
  EXPECT_EQ(OnlyOne("/a b  c").path, "/a b  c");
  EXPECT_EQ(OnlyOne("/a\\012b").path, "/a\nb");
  // Only newlines are escaped, not even backslashes.
  EXPECT_EQ(OnlyOne("/a\\040b\\134\\").path, "/a\\040b\\134\\");
  EXPECT_EQ(OnlyOne("/a\xff\x01").path, "/a\xff\x01");
  EXPECT_EQ(OnlyOne("").path, "");
}

TEST(ParseMaps, Deleted) {
  EXPECT_EQ(OnlyOne("/lib/x.so (deleted)").path, "/lib/x.so");
  EXPECT_TRUE(OnlyOne("/lib/x.so (deleted)").deleted);
  EXPECT_EQ(OnlyOne("/x (deleted) (deleted)").path, "/x (deleted)");
  EXPECT_FALSE(OnlyOne("/x (deleted)y").deleted);
  // A name given with prctl(2), not a file.
  EXPECT_FALSE(OnlyOne("[anon:x] (deleted)").deleted);
}

TEST(ParseMaps, LineWithoutBlankAtItsEnd) {
  EXPECT_THAT(*ParseMaps("1000-2000 r-xp 00000000 00:00 0"), SizeIs(1));
  EXPECT_THAT(*ParseMaps(""), IsEmpty());
}

TEST(ParseMaps, BrokenLines) {
  for (absl::string_view line : {"x",
                                 "1000",
                                 "1000-",
                                 "1000-2000",
                                 "1000-2000 r-xp",
                                 "1000-2000 r-xp ",
                                 "1000-2000 r-xp 0 0:0",
                                 "1000-2000 r-xp 0 0:0 ",
                                 "1000-2000 r-xp 0 0:0 x",
                                 "1000-2000 r-xp 0 0:0 1x",
                                 "2000-1000 r-xp 0 0:0 1",
                                 "1000-1000 r-xp 0 0:0 1",
                                 "-1000-2000 r-xp 0 0:0 1",
                                 "1000-10000000000000000 r-xp 0 0:0 1",
                                 "1000-2000 rwxpq 0 0:0 1",
                                 "1000-2000 r-xp 0 0 1",
                                 "1000-2000 r-xp 0 100000000:0 1",
                                 "1000-2000 r-xp 0 0:0 18446744073709551616",
                                 "0x1000-0x2000 r-xp 0 0:0 1",
                                 " 1000-2000 r-xp 0 0:0 1"}) {
    auto mappings = ParseMaps(line);
    EXPECT_TRUE(absl::IsInvalidArgument(mappings.status())) << line;
  }
  auto long_line = ParseMaps(std::string(100000, '\x1b'));
  EXPECT_THAT(long_line.status().message(), HasSubstr("\\x1b"));
  EXPECT_LT(long_line.status().message().size(), 500u);
}

TEST(ReadExecutableMappings, OfThisProcess) {
  auto mappings = ReadExecutableMappings(getpid());
  ASSERT_TRUE(mappings.ok()) << mappings.status();
  auto here = reinterpret_cast<uint64_t>(&ParseMaps);
  EXPECT_TRUE(std::any_of(mappings->begin(), mappings->end(), [here](const Mapping& mapping) {
    return mapping.start <= here && here < mapping.end && absl::StartsWith(mapping.path, "/") && mapping.inode != 0;
  }));
}

bool MapExecutable(const std::string& path) {
  int fd = open(path.c_str(), O_RDONLY);
  bool mapped = mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) != MAP_FAILED;
  close(fd);
  return mapped;
}

class OpenMappedTest : public ::testing::Test {
 protected:
  OpenMappedTest() { chmod(folder_.path().c_str(), 0755); }

  void Write(const std::string& content) {
    std::ofstream(path_) << content << std::string(4096, '\n');
    chmod(path_.c_str(), 0644);
  }

  static Mapping Find(pid_t pid, const std::string& path) {
    auto mappings = ReadExecutableMappings(pid);
    if (mappings.ok()) {
      for (const Mapping& mapping : *mappings) {
        if (mapping.path == path) return mapping;
      }
    }
    ADD_FAILURE() << path << " is not mapped; " << mappings.status();
    return {};
  }

  static std::string First(const base::FileDescriptor& file, size_t size) {
    std::string content(size, '\0');
    ssize_t count = pread(file.get(), content.data(), size, 0);
    content.resize(count > 0 ? count : 0);
    return content;
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "file";
};

TEST_F(OpenMappedTest, FileInPlace) {
  Write("in place");
  Child child([this] { return MapExecutable(path_); });
  ASSERT_TRUE(child.is_ready());
  Mapping mapping = Find(child.pid(), path_);
  EXPECT_FALSE(mapping.deleted);
  auto file = OpenMapped(child.pid(), mapping);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(First(file->file, 8), "in place");
}

TEST_F(OpenMappedTest, FileReplacedByAnother) {
  Write("first");
  Child child([this] { return MapExecutable(path_); });
  ASSERT_TRUE(child.is_ready());
  ASSERT_EQ(unlink(path_.c_str()), 0);
  Write("second");
  Mapping mapping = Find(child.pid(), path_);
  EXPECT_TRUE(mapping.deleted);
  auto file = OpenMapped(child.pid(), mapping);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(First(file->file, 5), "first");
  base::FileDescriptor by_path(open(file->path.c_str(), O_RDONLY));
  EXPECT_EQ(First(by_path, 5), "first");
}

TEST_F(OpenMappedTest, NewlineInName) {
  path_ += "\nwith newline";
  Write("newline");
  Child child([this] { return MapExecutable(path_); });
  ASSERT_TRUE(child.is_ready());
  auto file = OpenMapped(child.pid(), Find(child.pid(), path_));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(First(file->file, 7), "newline");
}

TEST_F(OpenMappedTest, OtherMountNamespace) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  Child child([this] {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
    if (mount("none", folder_.path().c_str(), "tmpfs", 0, nullptr) != 0) return false;
    Write("inside");
    return MapExecutable(path_);
  });
  ASSERT_TRUE(child.is_ready());
  ASSERT_NE(access(path_.c_str(), F_OK), 0);
  auto file = OpenMapped(child.pid(), Find(child.pid(), path_));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(First(file->file, 6), "inside");
}

// Without rights on map_files: by the path, and never another file.
TEST_F(OpenMappedTest, WithoutRightsOnMapFiles) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to give it up";
  Write("mine");
  Mapping mapping;
  Child child([&] {
    if (setresuid(65534, 65534, 65534) != 0 || prctl(PR_SET_DUMPABLE, 1) != 0 || !MapExecutable(path_)) return false;
    mapping = Find(getpid(), path_);
    auto file = OpenMapped(getpid(), mapping);
    if (!file.ok() || First(file->file, 4) != "mine") return false;
    Mapping other = mapping;
    ++other.inode;
    return absl::IsNotFound(OpenMapped(getpid(), other).status());
  });
  EXPECT_TRUE(child.is_ready());
}

TEST_F(OpenMappedTest, WhatIsNotAFile) {
  EXPECT_TRUE(absl::IsFailedPrecondition(OpenMapped(getpid(), Find(getpid(), "[vdso]")).status()));
  Child child([] { return MapExecutable("/dev/zero"); });
  ASSERT_TRUE(child.is_ready());
  auto device = OpenMapped(child.pid(), Find(child.pid(), "/dev/zero"));
  EXPECT_TRUE(absl::IsFailedPrecondition(device.status())) << device.status();
}

TEST_F(OpenMappedTest, MappingThatIsNotThere) {
  Mapping mapping = {.start = 0x1000, .end = 0x2000, .inode = 5, .path = "/bin/sh"};
  EXPECT_TRUE(absl::IsNotFound(OpenMapped(getpid(), mapping).status()));
}

TEST_F(OpenMappedTest, HolderOfALeaseCannotMakeItWait) {
  Write("leased");
  Child child([this] {
    // The kernel grants a lease to the only one who has the file open; the mapping is of that very open file.
    int fd = open(path_.c_str(), O_RDWR);
    return fcntl(fd, F_SETLEASE, F_WRLCK) == 0 && fcntl(fd, F_SETSIG, SIGCHLD) == 0 &&
           mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) != MAP_FAILED;
  });
  ASSERT_TRUE(child.is_ready());
  EXPECT_TRUE(absl::IsUnavailable(OpenMapped(child.pid(), Find(child.pid(), path_)).status()));
}

TEST_F(OpenMappedTest, ProcessThatIsGone) {
  pid_t pid = fork();
  if (pid == 0) _exit(0);
  siginfo_t information;
  ASSERT_EQ(waitid(P_PID, pid, &information, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(absl::IsNotFound(ReadExecutableMappings(pid).status())) << "a zombie";
  ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  EXPECT_TRUE(absl::IsNotFound(ReadExecutableMappings(pid).status()));
  Mapping mapping = {.start = 0x1000, .end = 0x2000, .inode = 5, .path = "/bin/sh"};
  EXPECT_TRUE(absl::IsNotFound(OpenMapped(pid, mapping).status()));
}

// The path is one that the kernel takes for a uprobe, even for a file that has no name any more.
TEST_F(OpenMappedTest, PathForAUprobe) {
  int type = 0;
  ASSERT_TRUE(std::ifstream("/sys/bus/event_source/devices/uprobe/type") >> type) << "no uprobes here";
  Write(std::string(64, '\x90'));
  Child child([this] { return MapExecutable(path_); });
  ASSERT_TRUE(child.is_ready());
  ASSERT_EQ(unlink(path_.c_str()), 0);
  auto file = OpenMapped(child.pid(), Find(child.pid(), path_));
  ASSERT_TRUE(file.ok()) << file.status();
  struct perf_event_attr attributes = {};
  attributes.size = sizeof(attributes);
  attributes.type = type;
  attributes.config1 = reinterpret_cast<uint64_t>(file->path.c_str());
  attributes.config2 = 16;
  base::FileDescriptor event(static_cast<int>(syscall(SYS_perf_event_open, &attributes, child.pid(), -1, -1, 0)));
  if (!event.valid() && errno == EACCES && geteuid() != 0) GTEST_SKIP() << "no right to uprobes";
  EXPECT_TRUE(event.valid()) << strerror(errno);
}

}  // namespace
}  // namespace heaptap::process
