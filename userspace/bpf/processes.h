// SPDX-License-Identifier: Apache-2.0
//
// The processes whose books are kept: those that are recorded now, with their settings, and those that have ended.
//
// Part of a Books, and like it an interface. Not thread-safe, except IsCurrent.
#ifndef HEAPTAP_USERSPACE_BPF_PROCESSES_H_
#define HEAPTAP_USERSPACE_BPF_PROCESSES_H_

#include <sys/types.h>

#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "bpf/books.h"
#include "heaptap/contract.h"

namespace heaptap::bpf {

// When the kernel sends events about a process, in estimated bytes; 0: never.
struct Triggers {
  uint64_t first_high_water = 0;
  uint32_t high_water_percent = 0;  // from one mark to the next
  uint64_t interval = 0;
};

inline heaptap_triggers ToKernel(const Triggers& triggers) {
  return {.first_high_water = triggers.first_high_water,
          .interval_step = triggers.interval,
          .high_water_percent = triggers.high_water_percent,
          .reserved = 0};
}

// A process that is recorded now, as the programs keep it.
struct RecordedProcess {
  pid_t tgid = 0;
  heaptap_process process = {};
};

// The settings that Configure changes for a process.
struct ProcessSettings {
  bool ignored = false;  // stop recording it
  uint32_t max_live = 0;
  uint32_t max_tallies = 0;
  Triggers triggers = {};
};

// Books that have ended.
struct EndedBooks {
  enum class Cause { kExit, kExec, kReset };
  pid_t tgid;
  Cause cause;
  uint32_t status;  // as in wait(2)
  bool by_oom_kill;
  uint64_t peak_weight;
};

// Whether Track opened the books. Otherwise an action of the process has opened them.
inline bool IsTracked(uint64_t process_id) { return process_id % 2 != 0; }

class Processes {
 public:
  virtual ~Processes() = default;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  // Opens books for the process `tgid`, and with `follow` for its future children. Returns the process id. The programs
  // keep figures of the process if it has triggers, or if SetSettings wants figures.
  virtual absl::StatusOr<uint64_t> Track(pid_t tgid, bool follow, const Triggers& triggers) = 0;
  // Whether `tgid` is now the PID of the process with this id.
  virtual bool IsCurrent(pid_t tgid, uint64_t process_id) const = 0;
  // Stops recording the process; its books stay until Books::Forget.
  virtual void Untrack(pid_t tgid) = 0;

  // Restricts the effect of SetSettings to these control groups and those below them. `groups`: descriptors of their
  // folders (version 2), at most HEAPTAP_MAX_GROUPS; negative: a group that does not exist yet; none: no restriction. A
  // process that is tracked stays tracked until it forks or execs outside of them. Takes effect with the next
  // SetSettings.
  virtual absl::Status RestrictTo(absl::Span<const int> groups) = 0;
  // Sets what happens to processes that were not tracked; all zeros: nothing. Fills in the rooms and groups.
  virtual absl::Status SetSettings(heaptap_settings settings) = 0;
  // Changes limits and triggers of a recorded process. NotFound: it has ended, or has other books by now. Other errors:
  // the kernel has no memory to do it, and nothing has changed.
  virtual absl::Status Configure(pid_t tgid, uint64_t process_id, const ProcessSettings& settings) = 0;

  // Takes the frees that the process holds back, which were read from its memory. Nothing happens if it has ended, or
  // has other books by now. An error: the kernel has no memory to take all of them; they may be taken again.
  virtual absl::Status TakeFrees(pid_t tgid, uint64_t process_id, absl::Span<const heaptap_free> frees) = 0;

  // Counts HEAPTAP_LOSS_BEGINNING for these books, once, unless the beginning of the process was seen or it has other
  // books by now. `held`: the bytes that its allocator holds, including the recorded ones.
  virtual absl::Status CountUnseenBeginning(pid_t tgid, uint64_t process_id, uint64_t held) = 0;
  // Takes the count back, because heaptap:start came after all.
  virtual void UncountBeginning(uint64_t process_id) = 0;

  // NotFound: the process is not recorded. Other errors: the kernel has no memory to answer.
  virtual absl::StatusOr<heaptap_process> Read(pid_t tgid) const = 0;
  // The processes that are recorded now, by process id, without those that share the books of their parent.
  virtual absl::StatusOr<std::map<uint64_t, RecordedProcess>> ReadAll() const = 0;
  // The books that have ended and are not forgotten, whether or not their events arrived.
  virtual absl::StatusOr<std::map<uint64_t, EndedBooks>> ReadUnnoticed() const = 0;
  // One look-up.
  virtual bool IsUnnoticed(uint64_t process_id) const = 0;

 protected:
  Processes() = default;
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_PROCESSES_H_
