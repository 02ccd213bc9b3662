// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/unit/support/child.h"
#include "tests/unit/support/folder.h"
#include "userspace/process/residency.h"

namespace heaptap::process {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

TEST(Residency, StackPointers) {
  EXPECT_EQ(StackPointerIn("0 0x3 0x7f 0x400 0x0 0x0 0x0 0x7ffc1e0a5f98 0x7f7a3c0d6a3e\n"), 0x7ffc1e0a5f98);
  EXPECT_EQ(StackPointerIn("-1 0x7ffc1e0a5f98 0x7f7a3c0d6a3e\n"), 0x7ffc1e0a5f98);
  EXPECT_EQ(StackPointerIn("running\n"), 0);
  EXPECT_EQ(StackPointerIn(""), 0);
  EXPECT_EQ(StackPointerIn("a b c d"), 0xc);
}

// A thread that waits has written a mebibyte of its stack.
TEST(Residency, StacksOfThreadsThatWait) {
  constexpr size_t kBytes = 1 << 20;
  const auto before = ReadResidency(getpid());
  ASSERT_TRUE(before.ok()) << before.status();
  std::promise<void> is_written;
  std::promise<void> may_end;
  std::thread thread([&] {
    char bytes[kBytes];
    memset(bytes, 1, sizeof(bytes));
    is_written.set_value();
    may_end.get_future().wait();
    asm volatile("" : : "r"(bytes) : "memory");
  });
  is_written.get_future().wait();
  // The thread is about to wait.
  const absl::Time deadline = absl::Now() + kPatience;
  uint64_t stacks = 0;
  while (stacks < before->stacks + kBytes && absl::Now() < deadline) {
    const auto now = ReadResidency(getpid());
    ASSERT_TRUE(now.ok()) << now.status();
    EXPECT_LE(now->stacks, now->anonymous);
    EXPECT_GT(now->files, 0);
    stacks = now->stacks;
  }
  EXPECT_GE(stacks, before->stacks + kBytes);
  may_end.set_value();
  thread.join();
}

// What the kernel says in kilobytes.
TEST(Residency, BytesOfAStoppedProcess) {
  const Child child;
  ASSERT_EQ(kill(child.pid(), SIGSTOP), 0);
  ASSERT_EQ(waitpid(child.pid(), nullptr, WUNTRACED), child.pid());
  const std::string status = ReadFile(absl::StrCat("/proc/", child.pid(), "/status"));
  const auto bytes = [&](const char* name) {
    const size_t at = status.find(name);
    return at == std::string::npos ? 0 : strtoull(status.c_str() + at + strlen(name), nullptr, 10) * 1024;
  };
  const auto resident = ReadResidency(child.pid());
  ASSERT_TRUE(resident.ok()) << resident.status();
  EXPECT_GT(resident->anonymous, 0);
  EXPECT_EQ(resident->anonymous, bytes("\nRssAnon:"));
  EXPECT_EQ(resident->files, bytes("\nRssFile:"));
  EXPECT_EQ(resident->shared, bytes("\nRssShmem:"));
}

TEST(Residency, OfNobody) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(absl::IsNotFound(ReadResidency(child).status()));
}

}  // namespace
}  // namespace heaptap::process
