// SPDX-License-Identifier: Apache-2.0
//
// What clients may ask of a running collector: the border between the recording, which one thread owns, and those who
// answer requests in threads of their own (HTTP).
//
// All calls are thread-safe. They wait for the recording's thread, at most kPatience; then Unavailable. A PID is that
// of the first PID name space. NotFound: no such process is recorded (one that has ended is not, any more).
#ifndef HEAPTAP_USERSPACE_SERVICE_COLLECTOR_H_
#define HEAPTAP_USERSPACE_SERVICE_COLLECTOR_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "heaptap/contract.h"
#include "userspace/export/prometheus.h"
#include "userspace/profile/profile.h"

namespace heaptap::service {

// A recorded process in figures. Estimates are of what the program did, not of samples.
struct ProcessSummary {
  pid_t pid = 0;
  uint64_t process_id = 0;  // of its books; never used twice
  // Who may look at it besides root: the one user that it belongs to wholly (real, effective and saved user id); nobody
  // if they differ.
  std::optional<uid_t> owner = {};
  std::string command = {};     // the process chose it; any byte may be in it
  std::string executable = {};  // path in the process's own mount name space; "": not known
  absl::Time recorded_since = {};
  double live_bytes = 0;
  double live_objects = 0;
  double peak_bytes = 0;       // the most that live_bytes has been
  double allocated_bytes = 0;  // since recorded_since
  double allocated_objects = 0;
  double allocation_rate = 0;  // bytes a second, over the last seconds
  uint64_t contexts = 0;
  uint64_t samples = 0;  // taken since recorded_since
  uint32_t lg_sample = 0;
  // prof.active, a second ago at most. Nothing: it has no control block, or does not let it be read.
  std::optional<bool> active = {};
  exporter::CountsByName losses = {};  // events, by reason (bpf::LossName)
};

// A process that has ended, as its books said in the end.
struct EndedProcess {
  ProcessSummary summary;
  absl::Time ended = {};
  int status = 0;  // as wait(2) has it
  bool by_oom_kill = false;
  std::string dump = {};  // path of its last dump; "": none was written
};

// The profile of a process at one moment. Contexts are as in dumps; build-ids are not filled in.
struct ProfileSnapshot {
  profile::Profile profile;
  uint64_t process_id = 0;
  std::string executable = {};
  absl::Time time = {};
};

// What a process's allocator says of itself. The process could have written anything there.
struct AllocatorFigures {
  uint32_t options = 0;  // HEAPTAP_OPTION_*
  bool active = false;
  uint32_t lg_sample = 0;  // in effect
  heaptap_statistics statistics = {};
};

class Collector {
 public:
  static constexpr absl::Duration kPatience = absl::Seconds(10);

  virtual ~Collector() = default;

  // By PID.
  virtual absl::StatusOr<std::vector<ProcessSummary>> Processes() = 0;
  // The latest ones, the last one first.
  virtual absl::StatusOr<std::vector<EndedProcess>> Ended() = 0;

  virtual absl::StatusOr<ProfileSnapshot> Snapshot(pid_t pid) = 0;
  // Writes a dump into the collector's folder. Returns its path.
  virtual absl::StatusOr<std::string> Dump(pid_t pid) = 0;

  // FailedPrecondition: the process's allocator has no control block. Unavailable: its memory cannot be had.
  virtual absl::StatusOr<AllocatorFigures> Allocator(pid_t pid) = 0;
  virtual absl::Status SetActive(pid_t pid, bool active) = 0;
  // Nothing: as the collector's rules and the process have it.
  virtual absl::Status SetRate(pid_t pid, std::optional<uint32_t> lg_sample) = 0;

  virtual absl::StatusOr<exporter::CollectorFigures> Figures() = 0;
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_COLLECTOR_H_
