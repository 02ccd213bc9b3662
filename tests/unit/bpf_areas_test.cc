// SPDX-License-Identifier: Apache-2.0
//
// Areas: what the program on a sample tells a thread (bpf/areas.bpf.h), on the simulated kernel; and how counts become
// tallies (userspace/bpf/kernel_areas.h), with the real one.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heaptap/contract.h"
#include "tests/unit/unwind_simulation.h"
#include "userspace/base/clock.h"
#include "userspace/bpf/kernel_areas.h"
#include "userspace/bpf/kernel_books.h"

namespace heaptap {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// --- mailboxes -------------------------------------------------------------------------------------------------------

constexpr uint32_t kSlot = 5;
constexpr uint32_t kMailbox = 3;

class MailboxTest : public ::testing::Test {
 protected:
  MailboxTest() {
    leaf_ = process_.Function(harness::Rule(HEAPTAP_CFA_RSP, 1));
    start_ = process_.Function(harness::Rule(HEAPTAP_CFA_END));
    process_.Load();
    process_.Words({leaf_ + 1, leaf_ + 2, start_ + 1});
    process_.kernel.areas[kSlot].resize(HEAPTAP_AREA_PAGES);
    process_.kernel.process.area = kSlot;
    process_.registers.rip = leaf_;
  }
  // A sample that passes the number of a mailbox. Returns its serial number.
  uint64_t Fire(uint64_t mailbox = kMailbox) {
    harness::Kernel& kernel = process_.kernel;
    kernel.Put("processes", kernel.tgid, kernel.process);
    host_context context = kernel.Context(process_.registers);
    context.registers.di = 0x5000 + serial_ * 64;
    context.registers.si = context.registers.dx = 48;
    context.registers.cx = ++serial_;
    context.registers.r9 = mailbox << HEAPTAP_WHERE_MAILBOX_SHIFT;
    kernel.cookie = HEAPTAP_PROBE_SAMPLE_SITE;
    probe_sample(&context.registers);
    return serial_;
  }
  heaptap_mailbox& Box(uint32_t number = kMailbox) { return process_.kernel.areas[kSlot][number]; }

  harness::Simulation process_;
  uint64_t leaf_, start_;
  uint64_t serial_ = 0;
};

TEST_F(MailboxTest, TellsTheWordsOfTheStack) {
  const uint64_t serial = Fire();
  const heaptap_mailbox& box = Box();
  EXPECT_EQ(box.serial, serial);
  EXPECT_EQ(box.begin, process_.stack_begin());
  EXPECT_EQ(box.end, harness::kStackTop);
  EXPECT_EQ(box.tid, process_.kernel.tid);
  EXPECT_THAT(std::vector<uint64_t>(box.words, box.words + box.count),
              ElementsAre(leaf_ + 1, (leaf_ + 2) | uint64_t{1} << HEAPTAP_WORD_DISTANCE_SHIFT,
                          (start_ + 1) | uint64_t{2} << HEAPTAP_WORD_DISTANCE_SHIFT));
  EXPECT_NE(process_.kernel.Find<heaptap_stack>("stacks", uint64_t{box.stack_id}), nullptr);
  const uint64_t stack_id = box.stack_id;
  // The same stack, without a walk.
  EXPECT_EQ(Fire(), serial + 1);
  EXPECT_EQ(box.serial, serial + 1);
  EXPECT_EQ(box.stack_id, stack_id);
  EXPECT_EQ(box.count, 3u);
}

TEST_F(MailboxTest, OnlyTheMailboxThatWasPassedIsWritten) {
  Fire();
  for (uint32_t page = 0; page < HEAPTAP_AREA_PAGES; page++) {
    if (page != kMailbox) EXPECT_EQ(Box(page).serial, 0u) << page;
  }
  for (const uint64_t number : {uint64_t{0}, uint64_t{HEAPTAP_MAILBOXES + 1}, uint64_t{UINT16_MAX}}) Fire(number);
  EXPECT_EQ(Box().serial, 1u);
  EXPECT_EQ(Box(HEAPTAP_MAILBOXES + 1).serial, 0u);
  EXPECT_EQ(Box(0).serial, 0u);
}

TEST_F(MailboxTest, WithoutAnAreaNothingIsTold) {
  process_.kernel.areas.clear();
  Fire();
  process_.kernel.areas[kSlot].resize(HEAPTAP_AREA_PAGES);
  process_.kernel.process.area = 0;
  Fire();
  EXPECT_EQ(Box().serial, 0u);
}

TEST_F(MailboxTest, WhileRecordsAreKeptNothingIsTold) {
  process_.kernel.process.flags = HEAPTAP_PROCESS_RECORDS;
  Fire();
  EXPECT_EQ(Box().serial, 0u);
}

// What is left of an earlier sample must not be taken for this one's.
TEST_F(MailboxTest, AStackThatCannotBeKnownAgain) {
  Fire();
  process_.kernel.WriteWord(process_.stack_begin() + 8, 0x1234);  // outside of all code
  EXPECT_EQ(Fire(), Box().serial);
  EXPECT_EQ(Box().count, 0u);
  process_.kernel.WriteWord(process_.stack_begin() + 8, leaf_ + 2);
  Fire();
  EXPECT_EQ(Box().count, 3u);
  // In a file whose table is not loaded.
  process_.kernel.WriteWord(process_.stack_begin() + 8,
                            process_.Function(harness::Rule(HEAPTAP_CFA_RSP, 1), harness::kLibrary) + 1);
  Fire();
  EXPECT_EQ(Box().count, 0u) << "the collector finishes the stack";
}

TEST_F(MailboxTest, ADeepStack) {
  for (const uint64_t words : {uint64_t{HEAPTAP_MAILBOX_WORDS}, uint64_t{HEAPTAP_MAILBOX_WORDS} + 1}) {
    process_.MoveTo(process_.stack_begin());
    for (uint64_t i = 1; i < words; i++) process_.Words({leaf_ + 1});
    process_.Words({start_ + 1});
    Fire();
    EXPECT_EQ(Box().serial, serial_);
    EXPECT_EQ(Box().count, words == HEAPTAP_MAILBOX_WORDS ? words : 0);
  }
}

TEST_F(MailboxTest, ALostSampleIsNotTold) {
  process_.kernel.failure = {.first = 1, .count = 10000, .error = -E2BIG, .map = "stacks"};
  Fire();
  EXPECT_EQ(Box().count, 0u) << "its stack";
  process_.kernel.failure = {.first = 1, .count = 20000, .error = -E2BIG, .map = "live"};
  Fire();
  EXPECT_EQ(Box().serial, serial_);
  EXPECT_EQ(Box().count, 0u) << "itself";
}

TEST_F(MailboxTest, OthersListenToo) {
  using Fields = std::set<std::string>;
  const char* const ring = "any_list->consumers.next";
  const char* const list = "any_pointer->consumers";
  for (const Fields& missing : {Fields{}, Fields{ring}}) {
    process_.kernel.no_fields = missing;
    process_.kernel.listeners = 2;
    Fire();
    EXPECT_EQ(Box().serial, serial_);
    EXPECT_EQ(Box().count, HEAPTAP_MAILBOX_OTHERS);
    process_.kernel.listeners = 1;
    Fire();
    EXPECT_EQ(Box().count, 3u);
  }
  for (const Fields& missing : {Fields{"any_task->auprobe"}, Fields{ring, list}}) {
    process_.kernel.no_fields = missing;
    Fire();
    EXPECT_EQ(Box().count, HEAPTAP_MAILBOX_OTHERS) << "the kernel does not tell";
  }
}

// The list of mappings is locked when the mapping of the stack is looked for.
TEST_F(MailboxTest, WhileMappingsChange) {
  Fire();
  process_.kernel.busy = 1;
  Fire();
  EXPECT_EQ(Box().count, 0u);
}

// --- counts ----------------------------------------------------------------------------------------------------------

TEST(CountsTest, BecomeATally) {
  const heaptap_counts counts = {.stack_id = 1,
                                 .tid = 2,
                                 .reserved = 0,
                                 .objects = 10,
                                 .bytes = 1000,
                                 .freed_objects = 3,
                                 .freed_bytes = 300,
                                 .others_objects = 4,
                                 .others_bytes = 400};
  const heaptap_tally tally = bpf::TallyOf(counts);
  EXPECT_EQ(tally.allocated.objects, 10u);
  EXPECT_EQ(tally.allocated.bytes, 1000u);
  EXPECT_EQ(tally.allocated.weight, 1000u);
  EXPECT_EQ(tally.allocated.weighted_objects, uint64_t{10} << HEAPTAP_OBJECT_FRACTION_BITS);
  EXPECT_EQ(tally.allocated.variance, 0u);
  EXPECT_EQ(tally.freed.objects, 7u);
  EXPECT_EQ(tally.freed.bytes, 700u);
}

TEST(CountsTest, ForgedNumbersCountAsNothing) {
  heaptap_counts counts;
  memset(&counts, 0xff, sizeof(counts));
  EXPECT_EQ(bpf::TallyOf(counts).allocated.objects, 0u);
  EXPECT_EQ(bpf::TallyOf(counts).freed.bytes, 0u);
  counts.objects = 5;
  counts.bytes = 500;
  counts.freed_objects = 6;
  counts.freed_bytes = 10;
  EXPECT_EQ(bpf::TallyOf(counts).freed.objects, 5u) << "no more than allocated";
  EXPECT_EQ(bpf::TallyOf(counts).freed.bytes, 10u);
}

class KernelAreasTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<bpf::Books>> books = bpf::KernelBooks::Load({.live = 1000});
    ASSERT_TRUE(books.ok()) << books.status();
    books_ = *std::move(books);
    ASSERT_TRUE(books_->areas()->Prepare().ok());
    absl::StatusOr<uint64_t> id = books_->processes().Track(getpid(), false, {});
    ASSERT_TRUE(id.ok()) << id.status();
    id_ = *id;
  }
  // Waits until an area is ready. Negative: the process gets none.
  int Give(uint32_t number, uint64_t id) {
    for (;;) {
      const absl::StatusOr<int> area = books_->areas()->Give(getpid(), id, number);
      if (area.ok()) return *area;
      if (!absl::IsUnavailable(area.status())) return -1;
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
  static char* Map(int area) {
    void* const memory = mmap(nullptr, HEAPTAP_AREA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, area, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
  }

  std::unique_ptr<bpf::Books> books_;
  uint64_t id_ = 0;
};

TEST_F(KernelAreasTest, WhatAProcessCountsIsInItsTallies) {
  const uint64_t first_counts = (1 + HEAPTAP_MAILBOXES) * HEAPTAP_AREA_PAGE_BYTES / sizeof(heaptap_counts);
  char* const first = Map(Give(0, id_));
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(reinterpret_cast<heaptap_area_head*>(first)->collector_pid, static_cast<uint32_t>(getpid()));
  char* const second = Map(Give(1, id_));
  ASSERT_NE(second, nullptr);
  auto* const counts = reinterpret_cast<heaptap_counts*>(first);
  counts[first_counts - 1] = {4, 5, 0, 1, 1, 0, 0, 0, 0};  // in a mailbox
  counts[first_counts] = {4711, 12, 0, 3, 300, 1, 100, 0, 0};
  reinterpret_cast<heaptap_counts*>(second)[0] = {4711, 12, 0, 10, 1000, 0, 0, 2, 200};
  const absl::StatusOr<std::vector<bpf::TallyEntry>> tallies = books_->entries().ReadTallies(id_);
  ASSERT_TRUE(tallies.ok());
  ASSERT_THAT(*tallies, SizeIs(1));
  EXPECT_EQ((*tallies)[0].stack_id, 4711u);
  EXPECT_EQ((*tallies)[0].tid, 12u);
  EXPECT_EQ((*tallies)[0].tally.allocated.bytes, 1300u);
  EXPECT_EQ((*tallies)[0].tally.freed.objects, 3u);
  const auto live = books_->entries().ReadLiveTotals();
  ASSERT_TRUE(live.ok());
  EXPECT_EQ(live->at(id_).objects, 10u);
  EXPECT_EQ(live->at(id_).bytes, 1000u);
  books_->processes().Untrack(getpid());
  ASSERT_TRUE(books_->Forget({id_}).ok());
  EXPECT_THAT(*books_->entries().ReadTallies(id_), IsEmpty());
  // The process may go on counting.
  counts[first_counts].objects++;
  munmap(first, HEAPTAP_AREA_BYTES);
  munmap(second, HEAPTAP_AREA_BYTES);
}

TEST_F(KernelAreasTest, OnlyTheNextAreaOfARecordedProcessIsGiven) {
  EXPECT_LT(Give(1, id_), 0) << "it has none";
  EXPECT_LT(Give(0, id_ + 2), 0) << "other books";
  const int first = Give(0, id_);
  EXPECT_GE(first, 0);
  EXPECT_EQ(Give(0, id_), first) << "it did not take it";
  EXPECT_GE(Give(1, id_), 0);
  EXPECT_LT(Give(0, id_), 0) << "it has two";
  EXPECT_EQ(books_->processes().Read(getpid())->area != 0, true);
}

TEST_F(KernelAreasTest, AreasHaveABound) {
  uint32_t number = 0;
  while (number < HEAPTAP_AREAS && Give(number, id_) >= 0) number++;
  EXPECT_EQ(number, uint32_t{HEAPTAP_AREAS});
  EXPECT_LT(Give(number, id_), 0);
}

}  // namespace
}  // namespace heaptap
