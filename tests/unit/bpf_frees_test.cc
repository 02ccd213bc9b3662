// SPDX-License-Identifier: Apache-2.0
//
// Tests the books of processes that number their samples and hold frees back, on the real kernel.
#include <signal.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "heaptap/contract.h"
#include "tests/unit/bpf_puppet.h"
#include "tests/unit/need_bpf.h"
#include "userspace/bpf/books.h"

namespace heaptap::bpf {
namespace {

// Whether this is the kernel of that version or a later one.
bool HasKernel(int wanted_major, int wanted_minor) {
  utsname name = {};
  uname(&name);
  int major = 0;
  int minor = 0;
  sscanf(name.release, "%d.%d", &major, &minor);
  return std::pair(major, minor) >= std::pair(wanted_major, wanted_minor);
}

class BpfFrees : public ::testing::Test {
 protected:
  static absl::Status Load() {
    if (shared_ != nullptr) return absl::OkStatus();
    shared_ = new Recording;
    absl::Status status = shared_->Load({});
    if (!status.ok()) delete std::exchange(shared_, nullptr);
    return status;
  }
  static void TearDownTestSuite() { delete std::exchange(shared_, nullptr); }

  // Begins the recording of the puppet, with figures.
  void Track() {
    absl::StatusOr<uint64_t> id = books().processes().Track(puppet_.pid(), false, {.interval = uint64_t{1} << 40});
    ASSERT_TRUE(id.ok()) << id.status();
    id_ = *id;
  }
  void TearDown() override {
    if (shared_ == nullptr) return;
    bpf::ExpectBalanced(books(), id_);
    books().processes().Untrack(puppet_.pid());
    EXPECT_TRUE(books().Forget({id_}).ok());
    EXPECT_TRUE(books().Sweep().ok());
  }

  static Books& books() { return *shared_->books; }
  uint64_t LiveObjects() { return bpf::Live(books(), id_).objects; }
  uint64_t Freed() { return bpf::Sum(books(), id_).freed.objects; }
  uint64_t Lost(heaptap_loss_reason reason) { return books().entries().ReadLosses(id_)[reason].events; }
  void Sample(uint64_t address, uint64_t serial, uint32_t slot = 1) {
    puppet_.Do({.kind = Order::kSample, .address = address, .size = 64, .weight = 64, .serial = serial, .slot = slot});
  }
  void Hold(uint64_t address, uint64_t serial, uint32_t slot = 1, uint64_t count = 1) {
    puppet_.Do({.kind = Order::kHold, .address = address, .count = count, .serial = serial, .slot = slot});
  }
  void HandOver(uint32_t slot) { puppet_.Do({.kind = Order::kHandOver, .slot = slot}); }
  uint64_t Pending() {
    const absl::StatusOr<heaptap_process> process = books().processes().Read(puppet_.pid());
    return process.ok() ? process->pending : ~uint64_t{0};
  }
  void End(int signal) {
    puppet_.End(signal);
    ASSERT_TRUE(books().TakeEvents().ok());
  }

  Puppet puppet_;
  uint64_t id_ = 0;

 private:
  static Recording* shared_;
};

Recording* BpfFrees::shared_ = nullptr;

TEST_F(BpfFrees, GoWithTheNextSample) {
  NEED_BPF(Load());
  Track();
  Sample(0x1000, 1);
  Sample(0x2000, 2);
  Hold(0x1000, 1);
  EXPECT_EQ(LiveObjects(), 2u);
  Sample(0x3000, 3);
  EXPECT_EQ(LiveObjects(), 2u);
  EXPECT_EQ(Freed(), 1u);
  Hold(0x2000, 2);
  Hold(0x3000, 3);
  Sample(0x4000, 4);
  EXPECT_EQ(LiveObjects(), 1u);
  EXPECT_EQ(Freed(), 3u);
}

// The entry of the freed object becomes that of the sample.
TEST_F(BpfFrees, TheAddressOfTheFirstFreeIsSampledAgain) {
  NEED_BPF(Load());
  Track();
  Sample(0x1000, 1);
  for (uint64_t serial = 1; serial <= 100; serial++) {
    Hold(0x1000, serial);
    if (serial % 10 == 0) Hold(0x1000, serial);  // a second free, of what is freed
    Sample(0x1000, serial + 1);
    ASSERT_EQ(LiveObjects(), 1u);
    ASSERT_EQ(Freed(), serial);
  }
  const absl::StatusOr<heaptap_process> process = books().processes().Read(puppet_.pid());
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_EQ(process->figures.live_objects, 1u);
  EXPECT_EQ(process->figures.live_weight, 64u);
  EXPECT_EQ(process->figures.peak_weight, 64u);
  EXPECT_EQ(process->figures.allocated_weight, 101u * 64);

  // A sample that is not entered takes no entry with it.
  Hold(0x1000, 101);
  puppet_.Do({.kind = Order::kSample, .address = 0x1000, .size = 64, .weight = 63, .serial = 102, .slot = 1});
  EXPECT_EQ(Lost(HEAPTAP_LOSS_BAD_SAMPLE), 1u);
  EXPECT_EQ(LiveObjects(), 0u);
  EXPECT_TRUE(books().Sweep().ok());
  Sample(0x1000, 103);
  EXPECT_EQ(LiveObjects(), 1u);
  EXPECT_EQ(Freed(), 101u);
}

// The free of the first object comes after the second object at its address, and twice.
TEST_F(BpfFrees, ALateFreeIsNotThatOfTheNextObject) {
  NEED_BPF(Load());
  Track();
  Sample(0x1000, 1);
  Sample(0x1000, 2);
  EXPECT_EQ(LiveObjects(), 1u);
  EXPECT_EQ(Lost(HEAPTAP_LOSS_MISSED_FREE), 0u);
  Hold(0x1000, 1, 2);
  HandOver(2);
  HandOver(2);
  EXPECT_EQ(LiveObjects(), 1u);
  EXPECT_EQ(Freed(), 1u);
  Hold(0x1000, 2);
  HandOver(1);
  HandOver(1);
  EXPECT_EQ(LiveObjects(), 0u);
  EXPECT_EQ(Freed(), 2u);
}

TEST_F(BpfFrees, AFullSlotIsTakenAtOnce) {
  NEED_BPF(Load());
  Track();
  for (uint64_t i = 0; i < HEAPTAP_SLOT_FREES; i++) Sample(0x1000 + 16 * i, 1 + i);
  Hold(0x1000, 1, 1, HEAPTAP_SLOT_FREES);
  HandOver(1);
  EXPECT_EQ(LiveObjects(), 0u);
  EXPECT_EQ(Freed(), uint64_t{HEAPTAP_SLOT_FREES});
}

TEST_F(BpfFrees, ImpossibleNumbersAreBadSamples) {
  NEED_BPF(Load());
  Track();
  Sample(0x1000, 0);
  Sample(0x1000, ~uint64_t{0});
  EXPECT_EQ(LiveObjects(), 0u);
  EXPECT_EQ(Lost(HEAPTAP_LOSS_BAD_SAMPLE), 2u);
  Sample(0x1000, 1);
  Hold(0x1000, 0);
  Hold(0x1000, ~uint64_t{0});
  HandOver(1);
  EXPECT_EQ(LiveObjects(), 1u);
}

TEST_F(BpfFrees, OfAllThreadsWhenTheProcessIsKilled) {
  NEED_BPF(Load());
  Track();
  for (uint64_t i = 1; i <= 4; i++) Sample(0x1000 * i, i);
  Hold(0x1000, 1, 1);
  Hold(0x2000, 2, 2);
  Hold(0x3000, 3, HEAPTAP_SLOTS);
  EXPECT_EQ(Pending(), reinterpret_cast<uint64_t>(&puppet_pending));
  EXPECT_EQ(LiveObjects(), 4u);
  End(SIGKILL);
  // Before Linux 6.16 a process has lost its memory when its end is noticed.
  const bool is_read = HasKernel(6, 16);
  EXPECT_EQ(LiveObjects(), is_read ? 1u : 4u);
  EXPECT_EQ(Lost(HEAPTAP_LOSS_FREES_UNREAD), is_read ? 0u : 1u);
}

TEST_F(BpfFrees, OfAllThreadsWhenTheProcessExecutesAProgram) {
  NEED_BPF(Load());
  Track();
  Sample(0x1000, 1);
  Sample(0x2000, 2);
  Hold(0x1000, 1, 2);
  puppet_.Send({.kind = Order::kExec});
  // The puppet does not reply, but the tracked process has other books then.
  while (books().processes().IsCurrent(puppet_.pid(), id_)) usleep(1000);
  const bool is_read = HasKernel(6, 10);
  EXPECT_EQ(LiveObjects(), is_read ? 1u : 2u);
  EXPECT_EQ(Lost(HEAPTAP_LOSS_FREES_UNREAD), is_read ? 0u : 1u);
  EXPECT_TRUE(books().TakeEvents().ok());
}

TEST_F(BpfFrees, NothingIsMissingOfAProcessThatHoldsNothingBack) {
  NEED_BPF(Load());
  Track();
  Sample(0x1000, 1);
  Hold(0x1000, 1);
  EXPECT_NE(Pending(), 0u);
  HandOver(1);
  HandOver(0);
  EXPECT_EQ(Pending(), 0u);
  End(SIGKILL);
  EXPECT_EQ(LiveObjects(), 0u);
  EXPECT_EQ(Lost(HEAPTAP_LOSS_FREES_UNREAD), 0u);
}

TEST_F(BpfFrees, TheCollectorMayTakeThem) {
  NEED_BPF(Load());
  Track();
  std::vector<heaptap_free> frees;
  for (uint64_t i = 1; i <= 100; i++) {
    Sample(16 * i, i);
    frees.push_back({16 * i, i});
  }
  EXPECT_TRUE(books().processes().TakeFrees(puppet_.pid(), id_ + 2, frees).ok());
  EXPECT_EQ(LiveObjects(), 100u) << "other books";
  frees.push_back({16, 2});
  for (int i = 0; i < 2; i++) EXPECT_TRUE(books().processes().TakeFrees(puppet_.pid(), id_, frees).ok());
  EXPECT_EQ(LiveObjects(), 0u);
  EXPECT_EQ(Freed(), 100u);
  const absl::StatusOr<heaptap_process> process = books().processes().Read(puppet_.pid());
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_EQ(process->costs.frees, 0u) << "without a probe";
}

}  // namespace
}  // namespace heaptap::bpf
