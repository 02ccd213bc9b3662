// SPDX-License-Identifier: Apache-2.0
//
// A machine for tests of the eBPF programs on the host: processes that sample, free, fork, exec and exit, and the books
// that the programs keep of them. Each event is one call of a program, as the kernel would call it.
#ifndef HEAPTAP_TESTS_UNIT_BPF_MACHINE_H_
#define HEAPTAP_TESTS_UNIT_BPF_MACHINE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/bpf_harness.h"

namespace heaptap::harness {

// The process of tests that need only one.
inline constexpr uint32_t kPid = 100;
// Code without a file and without frame pointers: each of its addresses is a whole stack of one frame.
inline constexpr uint64_t kCode = 0x10000000;
inline constexpr uint64_t kStackMemory = 0x7ffd00000000;
// Memory of all processes: frees that they hold back (struct heaptap_pending), and a page for what else they hand over.
inline constexpr uint64_t kPending = 0x20000000;
inline constexpr uint64_t kArguments = 0x30000000;

struct Sample {
  uint64_t address = 0x1000;
  uint64_t size = 64;
  uint64_t weight = 640;
  uint64_t serial = 0;                   // for Fire(); 0: the next number
  uint64_t stack = 1;                    // equal numbers are equal stacks
  std::vector<heaptap_free> frees = {};  // for Fire()
  uint32_t slot = 1;                     // where the thread holds frees back; 0: nowhere
  uint64_t heap = 0;                     // for Alloc(): the number of the heap
  uint64_t name = kArguments;            // of the heap
};

// How a thread ends.
struct Ending {
  uint32_t tid = kPid;
  int code = 0;
  int other_threads = 0;  // that still run
  bool is_of_group = false;
  int group_code = 0;
  bool is_by_oom_kill = false;
};

// What an object of the books has.
struct Totals {
  uint64_t objects = 0;
  uint64_t bytes = 0;
  uint64_t weight = 0;
  bool operator==(const Totals&) const = default;
};

// Losses by reason, without those that did not happen.
using Losses = std::map<uint32_t, uint64_t>;

class Machine {
 public:
  Machine();

  // --- processes -----------------------------------------------------------------------------------------------------

  // Enters a process as the collector does, and makes it the calling one.
  heaptap_process& Track(uint32_t tgid = kPid, uint32_t flags = 0);
  // Null: none. The entry itself, also of a vfork child.
  heaptap_process* Process(uint32_t tgid = kPid) { return kernel.Find<heaptap_process>("processes", tgid); }
  uint64_t Id(uint32_t tgid = kPid) { return Process(tgid) == nullptr ? 0 : Process(tgid)->identity.id; }
  // The ended books of a process, as the collector finds them; null: none.
  heaptap_process* Unnoticed(uint64_t id) { return kernel.Find<heaptap_process>("unnoticed", id); }
  // Makes a thread the calling one. `tid` 0: the first one of the process.
  void RunAs(uint32_t tgid, uint32_t tid = 0);

  void Fork(uint32_t parent, uint32_t child, bool shares_memory = false);
  void BeginThread(uint32_t tgid);
  void Exec(uint32_t tgid);
  void Exit(uint32_t tgid, const Ending& ending = {});
  // Deletes the tallies and losses of books, as the collector does; a sweep deletes the rest.
  void Forget(uint64_t id);

  // --- what the calling thread does ----------------------------------------------------------------------------------

  // A sample of an allocator that numbers its samples. Returns its serial number.
  uint64_t Fire(const Sample& sample);
  // A sample of another allocator.
  void Alloc(const Sample& sample);
  void Free(uint64_t address, uint64_t heap = 0, uint64_t stack = 1);
  // Hands over frees alone.
  void HandOver(const std::vector<heaptap_free>& frees, uint32_t slot = 1, uint64_t stack = 1);
  // Writes frees into a slot, without a word to the programs.
  void Hold(uint32_t slot, const std::vector<heaptap_free>& frees);
  // Calls a program on a probe with one argument: the address of a copy of these bytes.
  void Call(int (*program)(pt_regs*), const void* bytes, uint64_t size);
  void Call(int (*program)(pt_regs*), uint64_t argument);

  // --- the books -----------------------------------------------------------------------------------------------------

  heaptap_settings& settings() { return *kernel.Find<heaptap_settings>("settings", uint32_t{0}); }
  uint64_t& Counter(heaptap_counter which) { return *kernel.Find<uint64_t>("counters", static_cast<uint32_t>(which)); }
  // Null: none. The entry, also one without an object.
  heaptap_live* Live(uint64_t address, uint32_t tgid = kPid);
  uint64_t StackId(uint64_t address, uint32_t tgid = kPid);
  heaptap_tally* Tally(uint64_t stack_id, uint32_t tid = kPid, uint32_t tgid = kPid);
  // All tallies of a process, allocated and freed.
  Totals Allocated(uint64_t id);
  Totals Freed(uint64_t id);
  Totals LiveObjects(uint64_t id);
  Losses LossesOf(uint64_t id);
  // Of all processes and of none.
  Losses AllLosses();
  // The kinds of all events since the last call.
  std::vector<uint32_t> TakeKinds();
  // Claims the buffers for walks, as programs do that this one has preempted; or releases them.
  void ClaimScratch(bool is_claimed);

  // Whether the books balance (bpf/books.h), every sample is in the books or a counted loss, every stack of a tally is
  // kept, the counters and figures are those of the entries, and no buffer is left claimed.
  void ExpectBalanced();
  // From here on, samples made before do not count.
  void ForgetSamples() { made_.clear(); }

  Kernel kernel;
  // A test that sets figures itself says so.
  bool has_own_figures = false;

 private:
  pt_regs Registers(uint64_t stack) const;
  // Calls a program that takes a sample, and counts the sample as made.
  void Take(int (*program)(pt_regs*), pt_regs& registers);
  // The books that the samples of a process go to; 0: none.
  uint64_t BooksOf(uint32_t tgid);
  void ExpectFigures(const heaptap_process& process);

  std::map<uint64_t, uint64_t> made_;  // samples, by process id
  uint64_t next_id_ = 1;               // of the collector
  uint64_t next_serial_ = 1;
};

// The machine as a fixture; its books balance at the end of each test.
class MachineTest : public ::testing::Test, public Machine {
 protected:
  void TearDown() override { ExpectBalanced(); }
};

}  // namespace heaptap::harness

#endif  // HEAPTAP_TESTS_UNIT_BPF_MACHINE_H_
