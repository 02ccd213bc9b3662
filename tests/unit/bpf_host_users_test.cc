// SPDX-License-Identifier: Apache-2.0
//
// The shares of users (bpf/users.bpf.h) on the simulated kernel: events, new process images, entries of `processes`,
// names. unwind_raw_stacks_test.cc has raw stacks.
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/bpf_machine.h"

namespace heaptap::harness {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kEventBytes = sizeof(heaptap_event) + 8;  // with its header, in the ring
constexpr uint64_t kPeriod = uint64_t{1} << 30;              // of new images, in nanoseconds

constexpr uint32_t kUser = 1000;
constexpr uint32_t kOtherUser = 1001;

class HostUsers : public MachineTest {
 protected:
  HostUsers() { settings().everyone = 1; }

  // A new process of the user samples. Whether it has books now.
  bool Enter(uint32_t uid = kUser) {
    kernel.uid = uid;
    RunAs(++last_pid_);
    Fire({.slot = 0});
    return Process(last_pid_) != nullptr;
  }
  // The user's processes begin and end until its share of the images is used up.
  void UseUpImages() {
    kernel.uid = kUser;
    for (int i = 0; i < HEAPTAP_USER_IMAGES; i++) {
      RunAs(++last_pid_);
      Call(probe_start, kArguments);
      ASSERT_NE(Process(last_pid_), nullptr) << i;
      Exit(last_pid_, {.tid = last_pid_});
      kernel.TakeEvents();
    }
  }
  uint64_t NotEntered() { return AllLosses()[HEAPTAP_LOSS_PROCESSES_SHARE]; }

  uint32_t last_pid_ = 1000;
};

// --- events ----------------------------------------------------------------------------------------------------------

TEST_F(HostUsers, NoUserTakesTheRoomForEventsOfOthers) {
  constexpr uint64_t kEvents = 100;
  kernel.ring("events").bytes = kEvents * kEventBytes;
  for (int round = 0; round < 3; round++) {
    while (LossesOf(0)[HEAPTAP_LOSS_EVENTS_FULL] <= static_cast<uint64_t>(round)) Enter();
    EXPECT_NEAR(kernel.ring("events").used() / kEventBytes, kEvents * 4 / 5, 2);
    const uint64_t before = kernel.ring("events").used();
    for (int i = 0; i < 5; i++) EXPECT_TRUE(Enter(kOtherUser));
    EXPECT_EQ(kernel.ring("events").used(), before + 5 * kEventBytes);
    EXPECT_EQ(LossesOf(0)[HEAPTAP_LOSS_EVENTS_FULL], round + 1u);
    kernel.TakeEvents();
  }
}

// While less than half of the ring is in use, nobody asks whose it is.
TEST_F(HostUsers, HalfOfTheRingIsForAnybody) {
  constexpr uint64_t kEvents = 100;
  kernel.ring("events").bytes = kEvents * kEventBytes;
  for (uint64_t i = 0; i < kEvents / 2; i++) Enter();
  EXPECT_EQ(kernel.TakeEvents().size(), kEvents / 2);
  EXPECT_EQ(AllLosses(), Losses{});
}

TEST_F(HostUsers, ASweepIsAskedForUntilThereIsRoomForTheEvent) {
  Track();
  Counter(HEAPTAP_COUNTER_SWEEP_AT) = 1;
  kernel.ring("events").bytes = 64;
  Fire({.address = 0x1000});
  EXPECT_THAT(TakeKinds(), IsEmpty());
  kernel.ring("events").bytes = 1 << 20;
  Fire({.address = 0x2000});
  Fire({.address = 0x3000});
  EXPECT_THAT(TakeKinds(), ElementsAre(HEAPTAP_EVENT_LIVE_FILLING));
}

// --- new images ------------------------------------------------------------------------------------------------------

TEST_F(HostUsers, AUserBeginsSoManyImagesInAPeriod) {
  UseUpImages();
  EXPECT_EQ(AllLosses(), Losses{});
  EXPECT_FALSE(Enter());
  const uint32_t late = last_pid_;
  EXPECT_EQ(NotEntered(), 1);
  EXPECT_TRUE(Enter(kOtherUser));
  kernel.time += kPeriod;
  kernel.uid = kUser;
  RunAs(late);
  Fire({});
  EXPECT_NE(Process(late), nullptr) << "a sample of the next period";
  EXPECT_EQ(NotEntered(), 1);
}

TEST_F(HostUsers, ForksAndExecsBeginImages) {
  Track(kPid, HEAPTAP_PROCESS_FOLLOW);
  Track(kPid + 1, HEAPTAP_PROCESS_FOLLOW);
  UseUpImages();
  kernel.map("unnoticed").Clear();
  Fork(kPid, kPid + 10);
  EXPECT_EQ(Process(kPid + 10), nullptr);
  EXPECT_EQ(NotEntered(), 1);
  Fork(kPid, kPid + 10, true);
  EXPECT_NE(Process(kPid + 10), nullptr) << "it shares the image of its parent";
  EXPECT_EQ(NotEntered(), 1);
  EXPECT_THAT(TakeKinds(), IsEmpty());
  const uint64_t id = Id(kPid + 1);
  Exec(kPid + 1);
  EXPECT_EQ(Process(kPid + 1), nullptr);
  EXPECT_NE(Unnoticed(id), nullptr) << "the old image has its end";
  EXPECT_THAT(TakeKinds(), ElementsAre(HEAPTAP_EVENT_EXEC));
  EXPECT_EQ(NotEntered(), 2);
  Exec(kPid + 10);
  EXPECT_EQ(Process(kPid + 10), nullptr);
  EXPECT_EQ(NotEntered(), 3);
}

// What one command records is one user's.
TEST_F(HostUsers, WithoutEveryoneThereIsNoBound) {
  UseUpImages();
  settings().everyone = 0;
  Track(kPid, HEAPTAP_PROCESS_FOLLOW);
  Fork(kPid, kPid + 10);
  EXPECT_NE(Process(kPid + 10), nullptr);
  Exec(kPid);
  EXPECT_NE(Process(kPid), nullptr);
  EXPECT_EQ(AllLosses(), Losses{});
}

TEST_F(HostUsers, SubordinateIdsCountAsTheirOwner) {
  kernel.Put("owners", heaptap_owner_key{32, __builtin_bswap32(100007)}, uint32_t{kUser});
  UseUpImages();
  EXPECT_FALSE(Enter(100007));
  EXPECT_TRUE(Enter(100008));
}

TEST_F(HostUsers, RootHasNoBoundUnlessItHasLostItsRights) {
  kernel.uid = 0;
  for (const bool is_privileged : {true, false}) {
    kernel.is_privileged = is_privileged;
    for (int i = 0; i < HEAPTAP_USER_IMAGES + 1; i++) {
      RunAs(++last_pid_);
      Call(probe_start, kArguments);
      Exit(last_pid_, {.tid = last_pid_});
      kernel.TakeEvents();
    }
    EXPECT_EQ(NotEntered(), is_privileged ? 0 : 1);
  }
}

// --- entries of `processes` ------------------------------------------------------------------------------------------

TEST_F(HostUsers, AUserHasHalfOfTheProcesses) {
  settings().processes_room = 8;
  for (int i = 0; i < 4; i++) EXPECT_TRUE(Enter());
  EXPECT_FALSE(Enter());
  EXPECT_EQ(NotEntered(), 1);
  EXPECT_TRUE(Enter(kOtherUser));
  kernel.uid = kUser;
  const uint32_t pid = 1001;
  Exec(pid);
  EXPECT_NE(Process(pid), nullptr) << "an exec needs no other entry";
  EXPECT_FALSE(Enter());
  Exit(pid, {.tid = pid});
  EXPECT_TRUE(Enter()) << "an end leaves its entry to the next process";
  EXPECT_FALSE(Enter());
  heaptap_untrack argument = {.tgid = pid + 1, .reserved = 0};
  untrack(&argument);
  EXPECT_EQ(Process(pid + 1), nullptr);
  EXPECT_TRUE(Enter());
  EXPECT_FALSE(Enter());
}

// Whoever begins the next image of a process has its entry from then on.
TEST_F(HostUsers, AnExecMovesTheEntryToItsUser) {
  settings().processes_room = 4;
  EXPECT_TRUE(Enter(kOtherUser));
  const uint32_t pid = last_pid_;
  kernel.uid = kUser;
  Exec(pid);
  EXPECT_TRUE(Enter());
  EXPECT_FALSE(Enter());
  EXPECT_TRUE(Enter(kOtherUser));
  EXPECT_TRUE(Enter(kOtherUser));
  EXPECT_FALSE(Enter(kOtherUser));
}

TEST_F(HostUsers, AForkThatTakesAnEntryIsCountedOnce) {
  settings().processes_room = 6;
  EXPECT_TRUE(Enter());
  Process(last_pid_)->flags |= HEAPTAP_PROCESS_FOLLOW;
  const uint32_t parent = last_pid_;
  const uint32_t child = parent + 100;
  for (int i = 0; i < 5; i++) Fork(parent, child);
  EXPECT_NE(Process(child), nullptr);
  EXPECT_TRUE(Enter());
  EXPECT_FALSE(Enter());
}

// --- names -----------------------------------------------------------------------------------------------------------

// Threads of three users end, or name themselves.
class HostNames : public HostUsers {
 protected:
  static constexpr int kShare = HEAPTAP_DEFAULT_NAMES / HEAPTAP_USER_NAMES_PART;

  // `pid`: with books. The thread after the last one has a name.
  void Name(uint32_t pid, bool is_at_exit) {
    const uint32_t tid = ++last_tid_;
    if (is_at_exit) return (void)Exit(pid, {.tid = tid, .other_threads = 1});
    RunAs(pid, tid);
    Rename();
  }
  void Rename() {
    const char name[] = "worker";
    Call(probe_thread_name, name, sizeof(name));
  }
  bool HasName(uint32_t pid, uint32_t tid) {
    const heaptap_thread_key key = {Process(pid)->identity.id, tid, 0};
    return kernel.Find<heaptap_thread_name>("names", key) != nullptr;
  }

  uint32_t last_tid_ = 1'000'000;
};

TEST_F(HostNames, ThreadsWithoutEndCostNamesOfTheirUserOnly) {
  for (const bool is_at_exit : {true, false}) {
    ASSERT_TRUE(Enter(kOtherUser));
    const uint32_t other = last_pid_;
    Name(other, is_at_exit);
    const uint32_t tid_of_other = last_tid_;
    ASSERT_TRUE(Enter());
    const uint64_t before = kernel.map("names").size();
    const uint32_t first = last_tid_ + 1;
    for (int i = 0; i < kShare; i++) Name(last_pid_, is_at_exit);
    EXPECT_TRUE(HasName(last_pid_, first));
    for (int i = 0; i < 10; i++) Name(last_pid_, is_at_exit);
    EXPECT_EQ(kernel.map("names").size(), before + kShare) << is_at_exit;
    EXPECT_FALSE(HasName(last_pid_, first + 9));
    EXPECT_TRUE(HasName(last_pid_, first + 10));
    EXPECT_TRUE(HasName(last_pid_, last_tid_));
    EXPECT_TRUE(HasName(other, tid_of_other));
    Exit(last_pid_, {.tid = last_pid_});
    kernel.map("names").Clear();
  }
}

TEST_F(HostNames, ANewNameOfAThreadTakesNoOtherPlace) {
  ASSERT_TRUE(Enter());
  Name(last_pid_, false);
  const uint32_t first = last_tid_;
  for (int i = 0; i < 2 * kShare; i++) Rename();
  Name(last_pid_, false);
  EXPECT_TRUE(HasName(last_pid_, first));
}

TEST_F(HostNames, RootHasNoBound) {
  kernel.is_privileged = true;
  ASSERT_TRUE(Enter(0));
  for (int i = 0; i < kShare + 10; i++) Name(last_pid_, true);
  EXPECT_EQ(kernel.map("names").size(), kShare + 10);
}

}  // namespace
}  // namespace heaptap::harness
