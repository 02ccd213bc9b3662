// SPDX-License-Identifier: Apache-2.0
//
// For tests of the books on the real kernel. A puppet, a forked child of this program, fires probes of this program
// with any arguments: no allocator is needed, and nonsense can be said.
#ifndef HEAPTAP_TESTS_UNIT_BPF_PUPPET_H_
#define HEAPTAP_TESTS_UNIT_BPF_PUPPET_H_

#include <signal.h>
#include <stdint.h>
#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "userspace/bpf/books.h"
#include "userspace/bpf/pins.h"
#include "userspace/bpf/probes.h"
#include "userspace/service/unwind_tables.h"

// The probe sites.
extern "C" const char books_test_site_alloc, books_test_site_free, books_test_site_start, books_test_site_dump,
    books_test_site_thread_name, books_test_site_lost_stack;

namespace heaptap::bpf {

struct Order {
  enum Kind {
    kAlloc,      // the samples (address + i * step, size, weight), `count` of them
    kFree,       // frees `count` of them, likewise
    kLostStack,  // a sample without a stack
    kStart,
    kDump,       // `count` times
    kAsk,        // a request of kind `size` with the argument `weight`
    kName,       // the thread is called "thread" from now on
    kNamedEnd,   // another thread with the comm "worker" takes a sample and ends; replies with its TID
    kFork,       // a child that takes one sample at `address` and ends with status 7; replies with its PID
    kVforkExit,  // likewise, by vfork
    kVforkExec,  // likewise, but the vfork child ends with an exec of `true`
    kExec,       // becomes a `sleep`; there is no reply
    kDeep,       // `count` samples, each on another stack
    kRace,       // two threads allocate and free at random for `count` milliseconds, then free all
  };
  Kind kind = kAlloc;
  uint64_t address = 0;
  uint64_t size = 0;
  uint64_t weight = 0;
  uint64_t count = 1;
  uint64_t step = 16;
};

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

// Keys in the youngest map of that name that this process has open.
size_t CountEntries(const std::string& name);

// Loaded programs, attached to this program's probes in every process.
struct Recording {
  absl::Status Load(const MapSizes& sizes);
  // Likewise, and the probes are pinned too; or all is taken over.
  absl::Status LoadOrAdopt(const MapSizes& sizes, const Pins& pins);

  std::unique_ptr<Books> books;
  std::unique_ptr<service::UnwindTables> tables;
  std::vector<AttachedProbe> probes;  // go before the books

 private:
  absl::Status Attach(uint64_t unwind_bytes);
};

// What the books of a process come to.
heaptap_tally Sum(const Books& books, uint64_t process_id);
LiveTotals Live(const Books& books, uint64_t process_id);
void ExpectBalanced(const Books& books, uint64_t process_id);

}  // namespace heaptap::bpf

#endif  // HEAPTAP_TESTS_UNIT_BPF_PUPPET_H_
