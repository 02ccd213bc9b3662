// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/own_hands.h"
#include "userspace/process/maps.h"
#include "userspace/worker/hands.h"

namespace heaptap::worker {
namespace {

// A busy machine may let hands wait for long.
constexpr absl::Duration kPatience = absl::Minutes(1);

TEST(Hands, SeeWhatThisProcessSees) {
  Hands hands({}, kPatience);
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
  Hands hands({}, kPatience);
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
  Hands hands({}, kPatience);
  EXPECT_TRUE(absl::IsNotFound(hands.ReadExecutableMappings(1 << 30).status()));
  EXPECT_TRUE(absl::IsNotFound(hands.Facts(1 << 30).status()));
  EXPECT_FALSE(hands.Version(1 << 30, {.start = 4096, .end = 8192, .inode = 1}).ok());
}

TEST(Hands, AControlBlockIsReadOnlyOfTheRightProcess) {
  Hands hands({}, kPatience);
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
  FakeClock clock;
  Hands hands;
  ASSERT_TRUE(hands.ReadExecutableMappings(getpid()).ok());
  for (const pid_t pid : OwnHands()) kill(pid, SIGSTOP);
  std::thread time([&] {
    constexpr absl::Duration kRest = absl::Milliseconds(1);
    clock.AwaitWaiter(Hands::kPatience);
    clock.Advance(Hands::kPatience - kRest);
    clock.AwaitWaiter(kRest);
    clock.Advance(kRest);
  });
  const absl::Status late = hands.ReadExecutableMappings(getpid()).status();
  time.join();
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  // Without waiting: the clock stands still, so a wait would never end.
  EXPECT_TRUE(absl::IsUnavailable(hands.ReadExecutableMappings(getpid()).status()));
  clock.Advance(Hands::kRest);
  EXPECT_TRUE(absl::IsUnavailable(hands.ReadExecutableMappings(getpid()).status()));
  // Another process is looked at, also of the same user: root's processes do not rest together.
  if (getuid() == 0) {
    EXPECT_TRUE(hands.ReadExecutableMappings(getppid()).ok());
  }
  clock.Advance(absl::Nanoseconds(1));
  EXPECT_TRUE(hands.ReadExecutableMappings(getpid()).ok());
}

TEST(Hands, KilledOnesAreReplaced) {
  Hands hands({}, kPatience);
  for (int round = 0; round < 3; round++) {
    ASSERT_TRUE(hands.ReadExecutableMappings(getpid()).ok());
    for (const pid_t pid : OwnHands()) kill(pid, SIGKILL);
  }
}

}  // namespace
}  // namespace heaptap::worker
