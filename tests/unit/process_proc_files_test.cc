// SPDX-License-Identifier: Apache-2.0
//
// Reads a process whose main thread has ended while others go on.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/child.h"
#include "userspace/process/facts.h"
#include "userspace/process/handle.h"
#include "userspace/process/maps.h"
#include "userspace/process/memory_use.h"
#include "userspace/process/proc_files.h"
#include "userspace/process/residency.h"
#include "userspace/process/start_facts.h"

namespace heaptap::process {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr char kName[] = "main_one";

void* Wait(void*) {
  prctl(PR_SET_NAME, "other_one");
  for (;;) pause();
}

// Two threads that wait, and a main thread that has ended.
class Headless {
 public:
  Headless()
      : child_([] { return true; },
               [] {
                 prctl(PR_SET_NAME, kName);
                 pthread_t thread;
                 for (int i = 0; i < 2; i++) pthread_create(&thread, nullptr, Wait, nullptr);
                 syscall(SYS_exit, 0);
               }) {
    while (HasMainThread(pid())) usleep(1000);
  }
  pid_t pid() const { return child_.pid(); }

 private:
  Child child_;
};

std::vector<pid_t> ThreadsAsked(pid_t pid, int refusals) {
  std::vector<pid_t> threads;
  AskThreads(pid, [&](pid_t thread) {
    threads.push_back(thread);
    return threads.size() > static_cast<size_t>(refusals);
  });
  return threads;
}

TEST(ProcFiles, AMainThreadThatLivesIsTheOnlyOneAsked) {
  const Child child;
  EXPECT_TRUE(HasMainThread(child.pid()));
  EXPECT_THAT(ThreadsAsked(child.pid(), 0), ElementsAre(child.pid()));
  EXPECT_FALSE(AskThreads(child.pid(), [](pid_t) { return false; }));
  EXPECT_THAT(ThreadsAsked(child.pid(), 5), ElementsAre(child.pid())) << "whatever it answers";
}

TEST(ProcFiles, AfterTheMainThreadTheOthersAreAskedInTurn) {
  const Headless process;
  EXPECT_THAT(ThreadsAsked(process.pid(), 0), ElementsAre(process.pid()));
  EXPECT_THAT(ThreadsAsked(process.pid(), 1), SizeIs(2));
  EXPECT_THAT(ThreadsAsked(process.pid(), 2), SizeIs(3)) << "the next one, as if that thread had ended meanwhile";
  EXPECT_FALSE(AskThreads(process.pid(), [](pid_t) { return false; }));
}

TEST(ProcFiles, NobodyIsAskedAfterTheEnd) {
  const Child child;
  child.Kill();
  EXPECT_FALSE(HasMainThread(child.pid()));
  EXPECT_THAT(ThreadsAsked(child.pid(), 5), ElementsAre(child.pid()));
}

TEST(ProcFiles, AProcessIsEndingWhenAllItsThreadsAre) {
  const Child child;
  EXPECT_FALSE(IsEnding(child.pid()));
  child.Kill();
  EXPECT_TRUE(IsEnding(child.pid()));
  EXPECT_FALSE(IsEnding(Headless().pid()));
  EXPECT_TRUE(IsEnding(1 << 30)) << "there is none";
}

TEST(ProcFiles, ErrorsAreThoseOfTheMainThread) {
  const Headless process;
  EXPECT_FALSE(OpenProcFile(process.pid(), "no_such", O_RDONLY).valid());
  EXPECT_EQ(errno, ENOENT);
  EXPECT_THAT(std::string(ReadProcFile(process.pid(), "no_such", 1).status().message()),
              HasSubstr(absl::StrCat("/proc/", process.pid(), "/no_such")));
}

TEST(ProcFiles, MappingsAndTheirFiles) {
  const Headless process;
  const absl::StatusOr<std::vector<elf::Mapping>> mappings = ReadExecutableMappings(process.pid());
  ASSERT_TRUE(mappings.ok()) << mappings.status();
  const auto own = std::ranges::find_if(*mappings, [](const elf::Mapping& one) { return one.inode != 0; });
  ASSERT_NE(own, mappings->end());
  EXPECT_TRUE(OpenMapped(process.pid(), *own).ok()) << OpenMapped(process.pid(), *own).status();
}

TEST(ProcFiles, Facts) {
  const Headless process;
  const absl::StatusOr<Facts> facts = ReadFacts(process.pid());
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->pid, process.pid());
  EXPECT_EQ(facts->command, kName) << "that of the main thread, as ps shows it";
  EXPECT_EQ(facts->executable, OwnExecutable());
  EXPECT_EQ(ExecutableOf(process.pid()), OwnExecutable());
  EXPECT_EQ(facts->owner, getuid());
}

TEST(ProcFiles, HowItStarted) {
  const Headless process;
  const absl::StatusOr<StartFacts> facts = ReadStartFacts(process.pid());
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->arguments, ReadStartFacts(getpid())->arguments);
  EXPECT_FALSE(facts->has_other_mounts);
}

TEST(ProcFiles, Memory) {
  static uint64_t secret = 0x1234;
  const Headless process;
  EXPECT_GT(ReadMemoryUse(process.pid()).resident_bytes, 0);
  EXPECT_GT(ReadResidency(process.pid())->anonymous, 0);
  // A thread that runs has no stack pointer that others can read. Its threads run until they wait.
  for (int i = 0; i < 10000 && ReadResidency(process.pid())->stacks == 0; i++) usleep(1000);
  EXPECT_GT(ReadResidency(process.pid())->stacks, 0);
  const absl::StatusOr<Handle> handle = Handle::Open(process.pid());
  ASSERT_TRUE(handle.ok()) << handle.status();
  uint64_t found = 0;
  EXPECT_TRUE(handle->Read(reinterpret_cast<uint64_t>(&secret), &found, sizeof(found)).ok());
  EXPECT_EQ(found, secret);
  EXPECT_TRUE(absl::IsInvalidArgument(handle->TakeDescriptor(1 << 20).status())) << "it has no such descriptor";
}

}  // namespace
}  // namespace heaptap::process
