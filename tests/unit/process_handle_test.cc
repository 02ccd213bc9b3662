// SPDX-License-Identifier: Apache-2.0
//
// Tests handles of processes, and reading their memory and their control blocks.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/child.h"
#include "tests/unit/support/folder.h"
#include "userspace/process/control_block.h"
#include "userspace/process/handle.h"
#include "userspace/process/maps.h"

namespace heaptap::process {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

bool WaitUntil(const std::function<bool()>& condition) {
  for (int i = 0; i < 10000; i++) {
    if (condition()) return true;
    usleep(1000);
  }
  return false;
}

TEST(PtraceScope, OnlyTheHighestForbidsAll) {
  const TemporaryFolder folder;
  const std::string file = folder / "ptrace_scope";
  EXPECT_TRUE(CheckPtraceScope(file).ok()) << "a kernel without Yama";
  for (const char* scope : {"0\n", "1\n", "2\n"}) {
    WriteFile(file, scope);
    EXPECT_TRUE(CheckPtraceScope(file).ok()) << scope;
  }
  WriteFile(file, "3\n");
  const absl::Status status = CheckPtraceScope(file);
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("kernel.yama.ptrace_scope is 3"));
}

uint64_t secret = 0x1234;

TEST(Handle, ReadsAndWrites) {
  const Child child;
  absl::StatusOr<Handle> handle = Handle::Open(child.pid());
  ASSERT_TRUE(handle.ok()) << handle.status();
  const auto address = reinterpret_cast<uint64_t>(&secret);
  uint64_t value = 0;
  EXPECT_TRUE(handle->Read(address, &value, sizeof(value)).ok());
  EXPECT_EQ(value, 0x1234);
  value = 99;
  EXPECT_TRUE(handle->Write(address, &value, sizeof(value)).ok());
  value = 0;
  EXPECT_TRUE(handle->Read(address, &value, sizeof(value)).ok());
  EXPECT_EQ(value, 99);
  EXPECT_EQ(secret, 0x1234) << "that was the child's";
}

TEST(Handle, WhatIsNotMappedIsAnError) {
  // Far from where others map something.
  auto* pages = static_cast<char*>(mmap(reinterpret_cast<void*>(0x200000000000), 4096, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  const Child child;
  absl::StatusOr<Handle> handle = Handle::Open(child.pid());
  ASSERT_TRUE(handle.ok());
  char bytes[16];
  const auto end = reinterpret_cast<uint64_t>(pages) + 4096;
  EXPECT_TRUE(handle->Read(end - 16, bytes, 16).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(handle->Read(end - 8, bytes, 16))) << "whole or not at all";
  EXPECT_TRUE(absl::IsInvalidArgument(handle->Read(end, bytes, 16)));
  EXPECT_TRUE(absl::IsInvalidArgument(handle->Read(0, bytes, 16)));
  EXPECT_TRUE(absl::IsInvalidArgument(handle->Read(~uint64_t{0} - 7, bytes, 8)));
  EXPECT_TRUE(absl::IsInvalidArgument(handle->Read(uint64_t{1} << 63, bytes, 8)));
  munmap(pages, 4096);
}

TEST(Handle, NoSuchProcess) {
  Child child;
  const pid_t pid = child.pid();
  child.End();
  EXPECT_TRUE(absl::IsNotFound(Handle::Open(pid).status()));
  EXPECT_TRUE(absl::IsNotFound(Handle::Open(0).status()));
  EXPECT_TRUE(absl::IsNotFound(Handle::Open(-1).status()));
}

TEST(Handle, AfterTheEndNothingIsReadable) {
  Child child;
  absl::StatusOr<Handle> handle = Handle::Open(child.pid());
  ASSERT_TRUE(handle.ok());
  child.End();
  uint64_t value = 0;
  const auto address = reinterpret_cast<uint64_t>(&secret);
  EXPECT_TRUE(absl::IsNotFound(handle->Read(address, &value, sizeof(value))));
  EXPECT_TRUE(absl::IsNotFound(handle->Write(address, &value, sizeof(value))));
  EXPECT_TRUE(absl::IsNotFound(handle->TakeDescriptor(0).status()));
}

TEST(Handle, AnExecEndsTheHoldOnTheMemory) {
  int go[2];
  ASSERT_EQ(pipe2(go, O_CLOEXEC), 0);
  const Child child([] { return true; },
                    [&] {
                      char word;
                      if (read(go[0], &word, 1) == 1) execl("/bin/sleep", "sleep", "1000", nullptr);
                      _exit(1);
                    });
  absl::StatusOr<Handle> handle = Handle::Open(child.pid());
  ASSERT_TRUE(handle.ok());
  ASSERT_EQ(write(go[1], "x", 1), 1);
  ASSERT_TRUE(WaitUntil([&] { return NameOf(child.pid()) == "sleep"; }));
  uint64_t value = 0;
  // The old memory lives on while anybody else on the machine looks at it.
  EXPECT_TRUE(
      WaitUntil([&] { return !handle->Read(reinterpret_cast<uint64_t>(&secret), &value, sizeof(value)).ok(); }));
  close(go[0]);
  close(go[1]);
}

TEST(Handle, TakesDescriptors) {
  const base::FileDescriptor file(memfd_create("taken", MFD_CLOEXEC));
  const Child child;
  absl::StatusOr<Handle> handle = Handle::Open(child.pid());
  ASSERT_TRUE(handle.ok());
  absl::StatusOr<base::FileDescriptor> taken = handle->TakeDescriptor(file.get());
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(write(taken->get(), "x", 1), 1);
  EXPECT_EQ(lseek(file.get(), 0, SEEK_END), 1);
  EXPECT_NE(fcntl(taken->get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_TRUE(absl::IsInvalidArgument(handle->TakeDescriptor(1000000).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(handle->TakeDescriptor(-1).status()));
}

TEST(NameOf, HasNoControlCharacters) {
  const Child child([] { return prctl(PR_SET_NAME, "a\033[1m\nb") == 0; });
  EXPECT_EQ(NameOf(child.pid()), "a?[1m");
  EXPECT_EQ(NameOf(-1), "?");
  EXPECT_EQ(ExecutableOf(-1), "");
  EXPECT_EQ(ExecutableOf(child.pid()), OwnExecutable());
}

// A program with a control block, made by the C compiler.
class ControlBlock : public ::testing::Test {
 protected:
  ControlBlock() {
    std::ofstream(folder_ / "block.c") << "#define VERSION " << HEAPTAP_CONTROL_VERSION << "\n#define SIZE "
                                       << sizeof(heaptap_control) << "UL\n"
                                       << R"(
      /* Something in front, so that the block and the code do not lie at round addresses. */
      __attribute__((used)) char before[5000] = {1};
      unsigned long heaptap_control[SIZE / 8] __attribute__((visibility("default"))) =
          {0x0070617470616568, VERSION | SIZE << 32, 4711, 1 | 19UL << 32, 0xffffffff};
      __attribute__((noinline)) unsigned long read_block(void) { return *(volatile unsigned long*)heaptap_control; }
    )";
    std::ofstream(folder_ / "main.c") << R"(
      #include <stdio.h>
      #include <unistd.h>
      unsigned long read_block(void);
      int main(void) { printf("%lx\n", read_block()); fflush(stdout); for (;;) pause(); }
    )";
  }

  void Compile(const std::string& arguments) {
    ASSERT_EQ(system(absl::StrCat("cd ", folder_.string(), " && gcc -O1 ", arguments).c_str()), 0);
  }

  // Runs the program, and looks for the block in the file of that name.
  void ExpectFound(const std::string& program, const std::string& file_name) {
    const fs::path path = folder_ / program;
    const Child child([&] {
      const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
      dup2(null, STDOUT_FILENO);
      execl(path.c_str(), path.c_str(), nullptr);
      return false;
    });
    ASSERT_TRUE(child.is_ready());
    const fs::path wanted = fs::canonical(folder_ / file_name);
    absl::StatusOr<std::vector<elf::Mapping>> mappings;
    const elf::Mapping* mapping = nullptr;
    ASSERT_TRUE(WaitUntil([&] {
      mapping = nullptr;
      mappings = ReadExecutableMappings(child.pid());
      if (!mappings.ok()) return false;
      for (const elf::Mapping& one : *mappings) {
        if (one.path == wanted.string()) mapping = &one;
      }
      return mapping != nullptr;
    }));
    absl::StatusOr<MappedFile> file = OpenMapped(child.pid(), *mapping);
    ASSERT_TRUE(file.ok()) << file.status();
    absl::StatusOr<uint64_t> address = FindControl(file->file.get(), *mapping);
    ASSERT_TRUE(address.ok()) << address.status();
    absl::StatusOr<Handle> handle = Handle::Open(child.pid());
    ASSERT_TRUE(handle.ok()) << handle.status();
    absl::StatusOr<heaptap_control> control = absl::UnknownError("");
    // Before the loader has finished the block may be missing.
    ASSERT_TRUE(WaitUntil([&] { return (control = ReadControl(*handle, *address)).ok(); })) << control.status();
    EXPECT_EQ(control->pid, 4711);
    EXPECT_EQ(control->lg_sample, 19);
    EXPECT_EQ(OtherCollector(*control), 0);

    ASSERT_TRUE(TakeControl(*handle, *address, 5, true, getpid()).ok());
    control = ReadControl(*handle, *address);
    ASSERT_TRUE(control.ok());
    EXPECT_EQ(control->collector_lg_sample, 5);
    EXPECT_EQ(control->collector_pid, getpid());
    EXPECT_EQ(OtherCollector(*control), 0) << "that is us";
    ASSERT_TRUE(ReleaseControl(*handle, *address, getpid()).ok());
    control = ReadControl(*handle, *address);
    ASSERT_TRUE(control.ok());
    EXPECT_EQ(control->collector_lg_sample, HEAPTAP_NO_RATE);
    EXPECT_EQ(control->collector_pid, 0);
    EXPECT_EQ(control->lg_sample, 19);
  }

  TemporaryFolder temporary_;
  fs::path folder_ = temporary_.path();
};

TEST_F(ControlBlock, OfAPositionIndependentProgram) {
  Compile("-fPIE -pie -rdynamic main.c block.c -o program");
  ExpectFound("program", "program");
}

TEST_F(ControlBlock, OfASharedObject) {
  Compile("-fPIC -shared block.c -o libblock.so && gcc main.c -L. -lblock -Wl,-rpath,'$ORIGIN' -o program");
  ExpectFound("program", "libblock.so");
}

TEST_F(ControlBlock, OfAStaticProgram) {
  Compile("-static -no-pie main.c block.c -o program");
  ExpectFound("program", "program");
}

TEST_F(ControlBlock, OfAStaticPositionIndependentProgram) {
  Compile("-static-pie -fPIE main.c block.c -o program");
  ExpectFound("program", "program");
}

TEST_F(ControlBlock, OfALargePageAlignedProgram) {
  Compile("-fPIE -pie -rdynamic -Wl,-z,max-page-size=0x200000 main.c block.c -o program");
  ExpectFound("program", "program");
}

TEST(FindControl, NotFound) {
  const base::FileDescriptor file(open("/bin/sleep", O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(absl::IsNotFound(FindControl(file.get(), {.start = 0x1000, .end = 0x2000}).status()));
  const base::FileDescriptor text(open("/etc/passwd", O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(absl::IsNotFound(FindControl(text.get(), {.start = 0x1000, .end = 0x2000}).status()));
}

TEST(CheckControl, MagicVersionSize) {
  heaptap_control control = {};
  control.magic = HEAPTAP_CONTROL_MAGIC;
  control.version = HEAPTAP_CONTROL_VERSION;
  control.size = sizeof(control);
  EXPECT_TRUE(CheckControl(control, 1).ok());
  control.size++;
  EXPECT_TRUE(CheckControl(control, 1).ok()) << "a later one may have more";
  control.size = sizeof(control) - 1;
  EXPECT_TRUE(absl::IsInvalidArgument(CheckControl(control, 1)));
  control.size = sizeof(control);
  control.version++;
  EXPECT_THAT(CheckControl(control, 1).message(), HasSubstr("from the same release"));
  control.version--;
  control.magic = 1;
  EXPECT_TRUE(absl::IsInvalidArgument(CheckControl(control, 1)));
  control.magic = 0;
  EXPECT_TRUE(absl::IsNotFound(CheckControl(control, 1))) << "the library takes no samples";
  EXPECT_EQ(memcmp("heaptap", &(control.magic = HEAPTAP_CONTROL_MAGIC), 8), 0);
}

// The host is the process's claim.
TEST(AllocatorName, OfHeaptapAndOfAGuest) {
  heaptap_control control = {};
  EXPECT_EQ(AllocatorName(control), "heaptap");
  control.statistics.mapped = 7;
  EXPECT_EQ(AllocatorFiguresOf(control).statistics->mapped, 7);
  strcpy(control.host, "jemalloc 5.3.0");
  EXPECT_EQ(AllocatorName(control), "guest over jemalloc 5.3.0");
  EXPECT_EQ(AllocatorFiguresOf(control).name, "guest over jemalloc 5.3.0");
  EXPECT_FALSE(AllocatorFiguresOf(control).statistics.has_value());
  strcpy(control.host, "\x1b[31m\n\xc3\xa9");
  EXPECT_EQ(AllocatorName(control), "guest over ?[31m???");
  memset(control.host, 'x', sizeof(control.host));
  EXPECT_EQ(AllocatorName(control), "guest over " + std::string(sizeof(control.host), 'x')) << "without a NUL";
}

TEST(AllocatorFiguresOf, TheRateInEffect) {
  heaptap_control control = {};
  control.lg_sample = 19;
  control.collector_lg_sample = HEAPTAP_NO_RATE;
  EXPECT_EQ(AllocatorFiguresOf(control).lg_sample, 19);
  control.collector_lg_sample = 3;
  EXPECT_EQ(AllocatorFiguresOf(control).lg_sample, 3);
}

heaptap_control block = {};

TEST(TakeControl, WritesOnlyIntoAControlBlock) {
  block.collector_lg_sample = 77;
  const Child child;
  absl::StatusOr<Handle> handle = Handle::Open(child.pid());
  ASSERT_TRUE(handle.ok());
  const auto address = reinterpret_cast<uint64_t>(&block);
  EXPECT_TRUE(absl::IsNotFound(TakeControl(*handle, address, 3, false, getpid())))
      << "an exec may have come in between";
  heaptap_control copy;
  ASSERT_TRUE(handle->Read(address, &copy, sizeof(copy)).ok());
  EXPECT_EQ(copy.collector_lg_sample, 77);
  EXPECT_EQ(copy.collector_pid, 0);
}

TEST(WriteControl, OrdersLeaveWhoRecordsAsItIs) {
  block = {};
  block.magic = HEAPTAP_CONTROL_MAGIC;
  block.version = HEAPTAP_CONTROL_VERSION;
  block.size = sizeof(block);
  block.active = 1;
  block.lg_sample = 19;
  block.collector_lg_sample = HEAPTAP_NO_RATE;
  block.collector_pid = 1;
  const Child child;
  absl::StatusOr<Handle> handle = Handle::Open(child.pid());
  ASSERT_TRUE(handle.ok());
  const auto address = reinterpret_cast<uint64_t>(&block);
  ASSERT_TRUE(WriteActive(*handle, address, false).ok());
  ASSERT_TRUE(WriteRate(*handle, address, 12).ok());
  absl::StatusOr<heaptap_control> control = ReadControl(*handle, address);
  ASSERT_TRUE(control.ok());
  EXPECT_EQ(control->active, 0);
  EXPECT_EQ(control->collector_lg_sample, 12);
  EXPECT_EQ(control->lg_sample, 19);
  EXPECT_EQ(control->collector_pid, 1);
  ASSERT_TRUE(WriteActive(*handle, address, true).ok());
  control = ReadControl(*handle, address);
  ASSERT_TRUE(control.ok());
  EXPECT_EQ(control->active, 1);
}

TEST(WriteControl, WritesOnlyIntoAControlBlock) {
  block = {};
  block.active = 7;
  block.collector_lg_sample = 77;
  const Child child;
  absl::StatusOr<Handle> handle = Handle::Open(child.pid());
  ASSERT_TRUE(handle.ok());
  const auto address = reinterpret_cast<uint64_t>(&block);
  EXPECT_TRUE(absl::IsNotFound(WriteActive(*handle, address, true)));
  EXPECT_TRUE(absl::IsNotFound(WriteRate(*handle, address, 3)));
  heaptap_control copy;
  ASSERT_TRUE(handle->Read(address, &copy, sizeof(copy)).ok());
  EXPECT_EQ(copy.active, 7);
  EXPECT_EQ(copy.collector_lg_sample, 77);
}

TEST(ReleaseControl, LeavesAnotherCollectorsBlockAlone) {
  block.magic = HEAPTAP_CONTROL_MAGIC;
  block.version = HEAPTAP_CONTROL_VERSION;
  block.size = sizeof(block);
  block.collector_lg_sample = 3;
  block.collector_pid = 1;
  const Child child;
  absl::StatusOr<Handle> handle = Handle::Open(child.pid());
  ASSERT_TRUE(handle.ok());
  const auto address = reinterpret_cast<uint64_t>(&block);
  EXPECT_TRUE(ReleaseControl(*handle, address, getpid()).ok());
  absl::StatusOr<heaptap_control> control = ReadControl(*handle, address);
  ASSERT_TRUE(control.ok());
  EXPECT_EQ(control->collector_lg_sample, 3);
  EXPECT_EQ(control->collector_pid, 1);
}

TEST(OtherCollector, IsALivingProcessOfThatName) {
  const Child collector([] { return prctl(PR_SET_NAME, kCollectorName) == 0; });
  ASSERT_TRUE(WaitUntil([&] { return NameOf(collector.pid()) == kCollectorName; }));
  heaptap_control control = {};
  control.collector_pid = static_cast<uint32_t>(collector.pid());
  EXPECT_EQ(OtherCollector(control), collector.pid());
  control.collector_pid = 1;
  EXPECT_EQ(OtherCollector(control), 0) << "its PID was used again";
  control.collector_pid = ~0U;
  EXPECT_EQ(OtherCollector(control), 0);
}

}  // namespace
}  // namespace heaptap::process
