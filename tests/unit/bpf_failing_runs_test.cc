// SPDX-License-Identifier: Apache-2.0
//
// Programs that the kernel does not run, and entries that it does not delete, for want of memory.
#include <bpf/bpf.h>
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/bpf_puppet.h"
#include "tests/unit/need_bpf.h"
#include "userspace/bpf/kernel_books.h"
#include "userspace/bpf/map_access.h"

namespace {

// So many of the next runs fail.
std::atomic<int> runs_to_fail = 0;
std::atomic<int> deletions_to_fail = 0;

}  // namespace

// In front of libbpf's.
extern "C" int bpf_prog_test_run_opts(int program, bpf_test_run_opts* options) {
  static const auto run =
      reinterpret_cast<decltype(&bpf_prog_test_run_opts)>(dlsym(RTLD_NEXT, "bpf_prog_test_run_opts"));
  if (runs_to_fail == 0) return run(program, options);
  runs_to_fail--;
  errno = ENOMEM;
  return -ENOMEM;
}

// As Linux before 6.8 fails, which leaves the count as it was.
extern "C" int bpf_map_delete_batch(int map, const void* keys, uint32_t* count, const bpf_map_batch_opts* options) {
  static const auto run = reinterpret_cast<decltype(&bpf_map_delete_batch)>(dlsym(RTLD_NEXT, "bpf_map_delete_batch"));
  if (deletions_to_fail == 0) return run(map, keys, count, options);
  deletions_to_fail--;
  errno = ENOMEM;
  return -ENOMEM;
}

namespace heaptap::bpf {
namespace {

constexpr MapSizes kSizes = {.processes = 64,
                             .stacks = 1024,
                             .live = 4096,
                             .tallies = 16,
                             .losses = 256,
                             .events_bytes = 65536,
                             .raw_stacks_bytes = 1 << 20};
constexpr uint64_t kBytes = 100;

class BpfFailingRuns : public testing::Test {
 protected:
  ~BpfFailingRuns() override {
    runs_to_fail = 0;
    deletions_to_fail = 0;
  }

  absl::Status Load() { return recording_.Load(kSizes); }
  Books& books() { return *recording_.books; }
  // Opens books for the puppet.
  uint64_t Track(const Puppet& puppet) {
    absl::StatusOr<uint64_t> id = books().processes().Track(puppet.pid(), false, {});
    EXPECT_TRUE(id.ok()) << id.status();
    return id.value_or(0);
  }
  static void Sample(Puppet& puppet, uint64_t address) {
    puppet.Do({.kind = Order::kAlloc, .address = address, .size = kBytes, .weight = kBytes});
  }

  Recording recording_;
};

TEST_F(BpfFailingRuns, AreRepeated) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id = Track(puppet);
  runs_to_fail = kTries - 1;
  EXPECT_TRUE(books().processes().Configure(puppet.pid(), id, {.max_live = 7}).ok());
  EXPECT_EQ(runs_to_fail, 0);
  runs_to_fail = kTries - 1;
  EXPECT_TRUE(books().unwind().InvalidateRules(puppet.pid()));
}

TEST_F(BpfFailingRuns, AreErrorsAtLast) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id = Track(puppet);
  Sample(puppet, 0x1000);
  const std::vector<heaptap_free> frees = {{0x1000, 1}};
  runs_to_fail = kTries;
  EXPECT_TRUE(absl::IsResourceExhausted(books().processes().TakeFrees(puppet.pid(), id, frees)));
  runs_to_fail = kTries;
  EXPECT_TRUE(absl::IsResourceExhausted(books().processes().Configure(puppet.pid(), id, {.max_live = 7})));
  const absl::StatusOr<heaptap_process> process = books().processes().Read(puppet.pid());
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_EQ(process->limits.max_live, 0u);
  runs_to_fail = kTries;
  EXPECT_FALSE(books().unwind().InvalidateRules(puppet.pid()));
  const absl::StatusOr<std::vector<TallyEntry>> tallies = books().entries().ReadTallies(id);
  ASSERT_TRUE(tallies.ok()) << tallies.status();
  ASSERT_FALSE(tallies->empty());
  runs_to_fail = kTries;
  const absl::MutexLock lock(&books().entries().folding());
  EXPECT_FALSE(books().Fold(puppet.pid(), id, tallies->front(), process->threads_begun));
}

uint64_t Tallies() {
  const uint32_t key = HEAPTAP_COUNTER_TALLIES;
  uint64_t tallies = 0;
  EXPECT_EQ(bpf_map_lookup_elem(NewestMap("counters"), &key, &tallies), 0);
  return tallies;
}

TEST_F(BpfFailingRuns, DeletedTalliesCountUntilARunSucceeds) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id = Track(puppet);
  Sample(puppet, 0x1000);
  ASSERT_EQ(Tallies(), 1u);
  puppet.End(SIGKILL);
  while (books().processes().IsCurrent(puppet.pid(), id)) usleep(1000);
  runs_to_fail = kTries;
  ASSERT_TRUE(books().Forget({id}).ok());
  EXPECT_EQ(runs_to_fail, 0);
  EXPECT_EQ(CountEntries("tallies"), 0u);
  EXPECT_EQ(Tallies(), 1u);
  for (int i = 0; i < 2; i++) {
    ASSERT_TRUE(books().Forget({}).ok());
    EXPECT_EQ(Tallies(), 0u);
  }
}

TEST_F(BpfFailingRuns, DeletionsAreRepeated) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id = Track(puppet);
  Sample(puppet, 0x1000);
  puppet.End(SIGKILL);
  while (books().processes().IsCurrent(puppet.pid(), id)) usleep(1000);
  deletions_to_fail = kTries - 1;
  EXPECT_TRUE(books().Forget({id}).ok());
  EXPECT_EQ(deletions_to_fail, 0);
  EXPECT_EQ(CountEntries("tallies"), 0u);
}

TEST_F(BpfFailingRuns, AnEntryThatStaysKeepsNoOtherOne) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id = Track(puppet);
  Sample(puppet, 0x1000);
  puppet.End(SIGKILL);
  while (books().processes().IsCurrent(puppet.pid(), id)) usleep(1000);
  deletions_to_fail = 2 * kTries;  // two keys of losses
  const absl::Status status = books().Forget({id});
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), testing::StartsWith("2 entries of ended processes stay"));
  EXPECT_EQ(CountEntries("tallies"), 0u);
}

}  // namespace
}  // namespace heaptap::bpf
