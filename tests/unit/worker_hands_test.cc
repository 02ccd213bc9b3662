// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "userspace/process/handle.h"
#include "userspace/process/maps.h"
#include "userspace/worker/hands.h"

namespace heaptap::worker {
namespace {

bool IsChild(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(file, line);) {
    if (line == absl::StrCat("PPid:\t", getpid())) return true;
  }
  return false;
}

// The children of this process that are hands, zombies too.
std::vector<pid_t> OwnHands() {
  std::vector<pid_t> hands;
  for (const pid_t pid : process::ListProcesses()) {
    if (process::NameOf(pid) == "heaptap-hands" && IsChild(pid)) hands.push_back(pid);
  }
  return hands;
}

TEST(Hands, SeeWhatThisProcessSees) {
  Hands hands;
  const auto expected = process::ReadExecutableMappings(getpid());
  const auto given = hands.ReadExecutableMappings(getpid());
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(*given, *expected);
  for (const elf::Mapping& mapping : *given) {
    if (mapping.inode == 0) continue;
    struct stat status;
    ASSERT_EQ(stat(mapping.path.c_str(), &status), 0);
    const auto version = hands.Version(getpid(), mapping);
    ASSERT_TRUE(version.ok()) << version.status();
    EXPECT_EQ(*version, ToVersion(status));
  }
}

TEST(Hands, FactsAndThreads) {
  Hands hands;
  const auto facts = hands.Facts(getpid());
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->command, process::NameOf(getpid()));
  EXPECT_EQ(facts->executable, process::OwnExecutable());
  EXPECT_EQ(facts->user, getuid());
  const auto tid = static_cast<uint32_t>(gettid());
  const auto names = hands.ThreadNames(getpid(), {tid, 1u << 30});
  ASSERT_TRUE(names.ok()) << names.status();
  ASSERT_EQ(names->size(), 1u);
  EXPECT_EQ(names->at(tid), facts->command);
}

TEST(Hands, ProcessThatIsNotThere) {
  Hands hands;
  EXPECT_TRUE(absl::IsNotFound(hands.ReadExecutableMappings(1 << 30).status()));
  EXPECT_TRUE(absl::IsNotFound(hands.Facts(1 << 30).status()));
  EXPECT_FALSE(hands.Version(1 << 30, {.start = 4096, .end = 8192, .inode = 1}).ok());
}

TEST(Hands, AControlBlockIsReadOnlyOfTheRightProcess) {
  Hands hands;
  heaptap_control control = {};
  control.magic = HEAPTAP_CONTROL_MAGIC;
  control.version = HEAPTAP_CONTROL_VERSION;
  control.size = sizeof(control);
  control.lg_sample = 17;
  const ControlOrder read = {.address = reinterpret_cast<uint64_t>(&control)};
  const auto given = hands.Control(getpid(), read, [] { return true; });
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(given->lg_sample, 17u);
  EXPECT_TRUE(absl::IsNotFound(hands.Control(getpid(), read, [] { return false; }).status()));
  const ControlOrder take = {.verb = ControlVerb::kTake,
                             .argument = 5,
                             .follows = 1,
                             .collector = 4711,
                             .address = reinterpret_cast<uint64_t>(&control)};
  ASSERT_TRUE(hands.Control(getpid(), take, [] { return true; }).ok());
  EXPECT_EQ(control.collector_lg_sample, 5u);
  EXPECT_EQ(control.collector_pid, 4711u);
}

// Stopped hands stand for hands that wait in the kernel.
TEST(Hands, LateOnesAreReplacedAndTheProcessRests) {
  Hands hands;
  ASSERT_TRUE(hands.ReadExecutableMappings(getpid()).ok());
  for (const pid_t pid : OwnHands()) kill(pid, SIGSTOP);
  const absl::Time begin = absl::Now();
  const absl::Status late = hands.ReadExecutableMappings(getpid()).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  EXPECT_GE(absl::Now() - begin, Hands::kPatience - absl::Milliseconds(10));
  // Without waiting again.
  const absl::Time again = absl::Now();
  EXPECT_TRUE(absl::IsUnavailable(hands.ReadExecutableMappings(getpid()).status()));
  EXPECT_LT(absl::Now() - again, Hands::kPatience / 2);
  // Another process is looked at, also of the same user: root's processes do not rest together.
  if (getuid() == 0) {
    EXPECT_TRUE(hands.ReadExecutableMappings(getppid()).ok());
  }
}

TEST(Hands, KilledOnesAreReplaced) {
  Hands hands;
  for (int round = 0; round < 3; round++) {
    ASSERT_TRUE(hands.ReadExecutableMappings(getpid()).ok());
    for (const pid_t pid : OwnHands()) kill(pid, SIGKILL);
  }
}

}  // namespace
}  // namespace heaptap::worker
