// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/child.h"
#include "tests/unit/support/crowded_processor.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/own_hands.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/crews/hands.h"
#include "userspace/process/maps.h"
#include "userspace/process/proc_files.h"

namespace heaptap::worker {
namespace {

// A busy machine may let hands wait for long.
constexpr absl::Duration kPatience = absl::Minutes(1);

TEST(Hands, SeeWhatThisProcessSees) {
  Hands hands({.patience = kPatience});
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
  Hands hands({.patience = kPatience});
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
  Hands hands({.patience = kPatience});
  EXPECT_TRUE(absl::IsNotFound(hands.ReadExecutableMappings(1 << 30).status()));
  EXPECT_TRUE(absl::IsNotFound(hands.Facts(1 << 30).status()));
  EXPECT_FALSE(hands.Version(1 << 30, {.start = 4096, .end = 8192, .inode = 1}).ok());
}

TEST(Hands, AControlBlockIsReadOnlyOfTheRightProcess) {
  Hands hands({.patience = kPatience});
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

// A machine with more work than processors.
TEST(Hands, AreNotLateWhileTheyOnlyWaitForAProcessor) {
  constexpr absl::Duration kShort = absl::Milliseconds(30);
  const std::vector<pid_t> others = OwnHands();
  Hands hands({.patience = kShort, .longest = kPatience});
  // Others may have been started before. Hands that start late are killed.
  std::vector<pid_t> started;
  while (!hands.Facts(getppid()).ok() || started.size() != 1) {
    started = OwnHands();
    std::erase_if(started, [&](pid_t pid) { return std::ranges::count(others, pid) != 0; });
  }
  const pid_t asked = started.front();
  // The kernel may give the hands a processor at once, because others have waited there for a second.
  for (absl::Duration waited; waited < 3 * kShort;) {
    hands.TakeProcessorWait();
    const absl::Duration before = process::ProcessorWaitOf(asked);
    CrowdedProcessor processor;
    ASSERT_TRUE(processor.Take(asked));
    std::atomic<bool> has_answer = false;
    std::thread end([&] {
      const auto is_asked = [asked] {
        const auto scheduling = process::SchedulingOf(asked);
        return scheduling.has_value() && scheduling->is_ready;
      };
      while (!has_answer && !is_asked()) absl::SleepFor(absl::Milliseconds(1));
      absl::SleepFor(5 * kShort);
      processor.Release();
    });
    const auto facts = hands.Facts(getppid());
    has_answer = true;
    end.join();
    ASSERT_TRUE(facts.ok()) << facts.status();
    waited = process::ProcessorWaitOf(asked) - before;
    EXPECT_GE(hands.TakeProcessorWait(), waited);
    EXPECT_EQ(hands.TakeProcessorWait(), absl::ZeroDuration());
  }
}

// Stopped hands stand for hands that wait in the kernel.
class LateHandsTest : public ::testing::Test {
 protected:
  // A call that ends with the hands' patience.
  absl::Status BeLate(Hands& hands, absl::Duration patience) {
    StopOwnHands();
    std::thread time([&] {
      constexpr absl::Duration kRest = absl::Milliseconds(1);
      clock_.AwaitWaiter(patience);
      clock_.Advance(patience - kRest);
      clock_.AwaitWaiter(kRest);
      clock_.Advance(kRest);
    });
    absl::Status late = hands.ReadExecutableMappings(getpid()).status();
    time.join();
    return late;
  }

  FakeClock clock_;
};

TEST_F(LateHandsTest, AreReplacedAndTheProcessRests) {
  Hands hands;
  ASSERT_TRUE(hands.ReadExecutableMappings(getpid()).ok());
  const absl::Status late = BeLate(hands, Hands::kDefault.patience);
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  // Without waiting: the clock stands still, so a wait would never end.
  EXPECT_TRUE(absl::IsUnavailable(hands.ReadExecutableMappings(getpid()).status()));
  clock_.Advance(Hands::kRest.first - absl::Nanoseconds(1));
  EXPECT_TRUE(absl::IsUnavailable(hands.ReadExecutableMappings(getpid()).status()));
  // Another process of the same user is looked at.
  EXPECT_TRUE(hands.ReadExecutableMappings(getppid()).ok());
  clock_.Advance(absl::Nanoseconds(1));
  EXPECT_TRUE(hands.ReadExecutableMappings(getpid()).ok());
}

TEST_F(LateHandsTest, WhoIsLateAgainRestsLonger) {
  Hands hands;
  ASSERT_TRUE(hands.ReadExecutableMappings(getpid()).ok());
  for (absl::Duration rest = Hands::kRest.first; rest <= 4 * Hands::kRest.first; rest *= 2) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(BeLate(hands, Hands::kDefault.patience)));
    clock_.Advance(rest - absl::Nanoseconds(1));
    EXPECT_TRUE(absl::IsUnavailable(hands.ReadExecutableMappings(getpid()).status())) << rest;
    clock_.Advance(absl::Nanoseconds(1));
    // The new hands have to start.
    ASSERT_TRUE(hands.ReadExecutableMappings(getppid()).ok());
  }
}

// A process that stops waiting may have another file under the descriptor when the answer comes.
TEST(Hands, AnAreaIsSentToTheSocketThatAskedForIt) {
  Hands hands({.patience = kPatience});
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  const base::FileDescriptor mine(pair[0]);
  const base::FileDescriptor collectors(pair[1]);
  AreaSocket socket = {.cookie = 0, .descriptor = collectors.get()};
  socklen_t size = sizeof(socket.cookie);
  ASSERT_EQ(getsockopt(collectors.get(), SOL_SOCKET, SO_COOKIE, &socket.cookie, &size), 0);
  const auto is_current = [] { return true; };
  socket.cookie++;
  EXPECT_TRUE(absl::IsInvalidArgument(hands.GiveArea(getpid(), socket, STDERR_FILENO, is_current)));
  char byte;
  EXPECT_EQ(recv(mine.get(), &byte, 1, MSG_DONTWAIT), -1);
  socket.cookie--;
  EXPECT_EQ(hands.GiveArea(getpid(), socket, STDERR_FILENO, is_current), absl::OkStatus());
  EXPECT_EQ(recv(mine.get(), &byte, 1, MSG_DONTWAIT), 1);
  EXPECT_TRUE(absl::IsNotFound(hands.GiveArea(getpid(), socket, -1, [] { return false; })));
}

TEST(Hands, KilledOnesAreReplaced) {
  Hands hands({.patience = kPatience});
  for (int round = 0; round < 3; round++) {
    ASSERT_TRUE(hands.ReadExecutableMappings(getpid()).ok());
    for (const pid_t pid : OwnHands()) kill(pid, SIGKILL);
  }
}

}  // namespace
}  // namespace heaptap::worker
