// SPDX-License-Identifier: Apache-2.0
//
// For tests of the books on the real kernel. A puppet, a forked child of this program, fires probes of this program
// with any arguments, sensible or not. No allocator is needed.
#ifndef HEAPTAP_TESTS_UNIT_BPF_PUPPET_H_
#define HEAPTAP_TESTS_UNIT_BPF_PUPPET_H_

#include <signal.h>
#include <stdint.h>
#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "heaptap/contract.h"
#include "userspace/bpf/books.h"
#include "userspace/bpf/pins.h"
#include "userspace/bpf/probes.h"
#include "userspace/tables/unwind_tables.h"

// The probe sites.
extern "C" const char books_test_site_alloc, books_test_site_free, books_test_site_start, books_test_site_dump,
    books_test_site_thread_name, books_test_site_lost_stack, books_test_site_frees, books_test_site_sample;

namespace heaptap::bpf {

struct Order {
  enum Kind {
    kAlloc,      // takes `count` samples (address + i * step, size, weight)
    kFree,       // frees `count` samples at address + i * step
    kLostStack,  // takes a sample without a stack
    kStart,
    kDump,       // fires the probe `count` times
    kAsk,        // makes a request of kind `size` with the argument `weight`
    kName,       // names the thread "thread"
    kNamedEnd,   // a new thread with the comm "worker" takes a sample and ends; replies with its TID
    kFork,       // a new child takes one sample at `address` and ends with status 7; replies with its PID
    kVforkExit,  // likewise, by vfork
    kVforkExec,  // likewise, but the vfork child ends with an exec of `true`
    kExec,       // executes `sleep`; does not reply
    kDeep,       // takes `count` samples, each on a different stack
    kSample,     // takes a sample with the number `serial`, passing on what `slot` holds, which is then empty
    kHold,       // puts `count` frees into `slot`: address + i * step, numbers from `serial` on
    kHandOver,   // passes on what `slot` holds, which stays; with slot 0 says that nothing is held back any more
    kRace,       // two threads allocate and free at random for `count` milliseconds, then free all
  };
  Kind kind = kAlloc;
  uint64_t address = 0;
  uint64_t size = 0;
  uint64_t weight = 0;
  uint64_t count = 1;
  uint64_t step = 16;
  uint64_t serial = 0;
  uint32_t slot = 1;  // from 1 on
};

// What a puppet holds back, at this address in each puppet.
extern heaptap_pending puppet_pending;

class Puppet {
 public:
  Puppet();
  ~Puppet() { End(SIGKILL); }
  Puppet(const Puppet&) = delete;
  Puppet& operator=(const Puppet&) = delete;

  pid_t pid() const { return pid_; }

  void Send(const Order& order) const;
  // The reply; -1 if the puppet is dead.
  int64_t Wait() const;
  bool HasReplied() const;
  int64_t Do(const Order& order) const {
    Send(order);
    return Wait();
  }

  void End(int signal);

 private:
  pid_t pid_ = 0;
  int socket_ = -1;
};

// The descriptor of the newest map of that name that this process has open; -1, and the test fails: there is none.
int NewestMap(const std::string& name);
// The number of its keys.
size_t CountEntries(const std::string& name);

// Loaded programs, attached to this program's probes in every process.
struct Recording {
  absl::Status Load(const MapSizes& sizes);
  // Like Load, and pins the probes too; or adopts what is pinned.
  absl::Status LoadOrAdopt(const MapSizes& sizes, const Pins& pins);

  std::unique_ptr<Books> books;
  worker::Hands hands{{.patience = absl::Minutes(1)}};
  std::optional<worker::Looks> looks;
  worker::Errands errands{worker::Urgency::kForeground};
  std::unique_ptr<recording::UnwindTables> tables;
  std::vector<AttachedProbe> probes;  // destroyed before the books

 private:
  absl::Status Attach(uint64_t unwind_bytes);
};

// Sums over the books of a process.
heaptap_tally Sum(const Books& books, uint64_t process_id);
LiveTotals Live(const Books& books, uint64_t process_id);
void ExpectBalanced(const Books& books, uint64_t process_id);

}  // namespace heaptap::bpf

#endif  // HEAPTAP_TESTS_UNIT_BPF_PUPPET_H_
