// SPDX-License-Identifier: Apache-2.0
//
// The figures of a recording: of each process, of its allocator, and of the collector.
#ifndef HEAPTAP_USERSPACE_PROFILE_FIGURES_H_
#define HEAPTAP_USERSPACE_PROFILE_FIGURES_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "heaptap/contract.h"

namespace heaptap::profile {

// Numbers by name: losses by reason, dumps by trigger, events by kind.
using CountsByName = std::map<std::string, uint64_t>;

// One process image in a recording. A PID is used again, a process id never: an order with both reaches exactly the
// process that it was given for, or none.
struct ProcessRef {
  pid_t pid = 0;
  uint64_t process_id = 0;

  friend bool operator==(const ProcessRef&, const ProcessRef&) = default;
};

// A recorded process, with what clients may be told before its figures are read.
struct NamedProcess {
  pid_t pid = 0;
  uint64_t process_id = 0;
  std::optional<uid_t> owner = {};  // as ProcessSummary::owner
  std::string command = {};         // as ProcessSummary::command

  ProcessRef ref() const { return {pid, process_id}; }
};

// The figures of a recorded process. Bytes and objects are estimates of all allocations, not counts of samples.
struct ProcessSummary {
  pid_t pid = 0;
  uint64_t process_id = 0;  // of its books; never used twice
  // The user who may look at the process besides root (process::Facts); none if its user ids differ.
  std::optional<uid_t> owner = {};
  std::string command = {};     // chosen by the process; may hold any byte
  std::string executable = {};  // path in the process's own mount namespace; "": unknown
  // An ended process keeps the service and the control group that it had. Both may hold any byte
  // (process/service_name.h).
  std::optional<std::string> service = {};        // the name of its systemd unit; none: it has none, or it is unknown
  std::optional<std::string> control_group = {};  // the longest of its paths; none: unknown
  absl::Time recorded_since = {};
  double live_bytes = 0;
  double live_objects = 0;
  double peak_bytes = 0;       // the maximum of live_bytes
  double allocated_bytes = 0;  // since recorded_since
  double allocated_objects = 0;
  double allocation_rate = 0;  // bytes per second, over the last seconds
  uint64_t contexts = 0;
  uint64_t samples = 0;  // taken since recorded_since
  uint32_t lg_sample = 0;
  // prof.active, at most a second old. None: the process has no control block, or it cannot be read.
  std::optional<bool> active = {};
  CountsByName losses = {};  // events, by reason (bpf::LossName)
  // What its allocator is: "heaptap", "guest over jemalloc 5.3.0"; none: the process has no control block.
  std::optional<std::string> allocator = {};
  std::optional<int64_t> resident_bytes = {};  // none: unknown, as for a process that has ended
  // How live_bytes grew lately, from the history (api/growth_rates.h): bytes per minute, their standard error, and over
  // how many seconds. None: the daemon keeps no history, or has too little of the process.
  std::optional<double> growth_per_minute = {};
  std::optional<double> growth_error = {};
  std::optional<double> growth_seconds = {};

  ProcessRef ref() const { return {pid, process_id}; }
};

// A process that has ended, with its last figures.
struct EndedProcess {
  ProcessSummary summary;
  absl::Time ended = {};
  int status = 0;  // as in wait(2)
  bool by_oom_kill = false;
  std::string dump = {};  // path of its last dump; "": none
};

// What a process's allocator reports about itself. Not to be trusted: the process can write anything there.
struct AllocatorFigures {
  std::optional<std::string> name = {};  // as ProcessSummary::allocator
  uint32_t options = 0;                  // HEAPTAP_OPTION_*
  bool active = false;
  uint32_t lg_sample = 0;  // in effect
  // None: the process's memory belongs to another allocator, and the library is a guest of that allocator.
  std::optional<heaptap_statistics> statistics = heaptap_statistics{};
};

// The figures of the collector and of all processes.
struct CollectorFigures {
  std::string version = {};
  std::string revision = {};
  std::vector<ProcessSummary> processes = {};
  CountsByName events = {};  // handled by the collector, by kind
  CountsByName losses = {};  // events of no known process, by reason
  CountsByName dumps = {};   // written, by trigger
  uint64_t dump_errors = 0;  // dumps that could not be written
  absl::Duration dump_time = {};
  std::optional<absl::Time> last_dump = {};
  std::optional<uint64_t> kernel_memory_bytes = {};  // that maps hold; none: the kernel does not report it
  uint64_t kernel_memory_most_bytes = 0;             // that they may hold
  double ring_fill_ratio = 0;                        // 0 to 1
  absl::Duration longest_pause = {};                 // of the recording's thread in the last seconds
  // Tasks that the collector tries again and again without success, such as the writing of the history, and since when
  // they fail.
  std::map<std::string, absl::Time> failing = {};
  CountsByName beyond_bounds = {};  // what was left undone, by bound (base/bounds.h)
};

}  // namespace heaptap::profile

#endif  // HEAPTAP_USERSPACE_PROFILE_FIGURES_H_
