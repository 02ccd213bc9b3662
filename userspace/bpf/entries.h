// SPDX-License-Identifier: Apache-2.0
//
// What the books hold, for code that only reads them: tallies, live objects, stacks, names of threads, records, losses.
//
// Part of a Books, and like it an interface. bpf/books.h describes the entries. Thread-safe, also while another thread
// uses the books.
// Contents that a process can influence (addresses, sizes, weights, names) are unverified.
#ifndef HEAPTAP_USERSPACE_BPF_ENTRIES_H_
#define HEAPTAP_USERSPACE_BPF_ENTRIES_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "bpf/books.h"

namespace heaptap::bpf {

struct TallyEntry {
  uint64_t stack_id;
  uint32_t tid;
  heaptap_tally tally;
};

struct ThreadName {
  std::string name;
  bool given = false;  // by the program; else it is the comm of the thread when it ended
};

struct LiveTotals {
  uint64_t objects = 0;
  uint64_t bytes = 0;
  uint64_t weight = 0;
};

using Losses = std::array<heaptap_loss, HEAPTAP_LOSS_REASONS>;

// A sentence for people, such as "samples not recorded: map of live objects full".
absl::string_view LossDescription(uint32_t reason);
// A stable name for machines, such as "live_full".
absl::string_view LossName(uint32_t reason);

// Describes where a stack ends (enum heaptap_stack_end), for people.
absl::string_view StackEndDescription(uint32_t end);

class Entries {
 public:
  virtual ~Entries() = default;
  Entries(const Entries&) = delete;
  Entries& operator=(const Entries&) = delete;

  // The functions that read tallies hold this lock for reading. A caller of Books::Fold holds it for writing: otherwise
  // a reader could find the tally of an ended thread neither in its own place nor in that of thread 0.
  absl::Mutex& folding() const { return folding_; }

  // Each of these reads a whole map once.
  virtual absl::StatusOr<std::vector<TallyEntry>> ReadTallies(uint64_t process_id) const = 0;
  // Calls `visit(process_id, entry)` for each tally of all processes.
  virtual absl::Status VisitTallies(absl::FunctionRef<void(uint64_t, const TallyEntry&)> visit) const = 0;
  // The tallies of all processes, by process id.
  virtual absl::StatusOr<std::map<uint64_t, std::vector<TallyEntry>>> ReadAllTallies() const = 0;
  // By process id. A process without live objects may be missing.
  virtual absl::StatusOr<std::map<uint64_t, LiveTotals>> ReadLiveTotals() const = 0;
  // Calls `visit` for each live object of one process.
  virtual absl::Status VisitLive(uint64_t process_id, absl::FunctionRef<void(const heaptap_live&)> visit) const = 0;
  // The records of the process, oldest first. A record that is being written may be missing or mixed with the next one.
  virtual absl::StatusOr<std::vector<heaptap_record>> ReadRecords(uint64_t process_id) const = 0;

  // One look-up. NotFound for HEAPTAP_NO_STACK.
  virtual absl::StatusOr<heaptap_stack> ReadStack(uint64_t stack_id) const = 0;
  // One look-up. NotFound: the program did not name the thread and the thread still runs, or the name was dropped.
  virtual absl::StatusOr<ThreadName> ReadThreadName(uint64_t process_id, uint32_t tid) const = 0;
  // One look-up for each reason. Process id 0: losses of no known process; those of processes that one user could not
  // begin are under HEAPTAP_LOSSES_OF_USER and the user's slot.
  virtual Losses ReadLosses(uint64_t process_id) const = 0;
  // The losses of all processes that have some, with a few system calls. After an error some are missing. Process id 0:
  // losses of no known process, for all users.
  virtual std::map<uint64_t, Losses> ReadAllLosses() const = 0;

 protected:
  Entries() = default;

 private:
  mutable absl::Mutex folding_;
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_ENTRIES_H_
