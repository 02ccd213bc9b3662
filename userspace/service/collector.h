// SPDX-License-Identifier: Apache-2.0
//
// What clients may ask of a running collector: the interface between the recording, which one thread owns, and the
// threads that answer requests (HTTP).
//
// All calls are thread-safe. They wait for the recording's thread, at most kPatience; then Unavailable. PIDs are those
// of the initial PID namespace. NotFound: the process is not recorded, or has ended.
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

// The figures of a recorded process. Bytes and objects are estimates of all allocations, not counts of samples.
struct ProcessSummary {
  pid_t pid = 0;
  uint64_t process_id = 0;  // of its books; never used twice
  // The user who may look at the process besides root (ProcessOwner); none if its user ids differ.
  std::optional<uid_t> owner = {};
  std::string command = {};     // chosen by the process; may hold any byte
  std::string executable = {};  // path in the process's own mount namespace; "": unknown
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
  exporter::CountsByName losses = {};  // events, by reason (bpf::LossName)
};

// A process that has ended, with its last figures.
struct EndedProcess {
  ProcessSummary summary;
  absl::Time ended = {};
  int status = 0;  // as wait(2) has it
  bool by_oom_kill = false;
  std::string dump = {};  // path of its last dump; "": none
};

// The profile of a process at one moment, with contexts as in dumps and without build-ids.
struct ProfileSnapshot {
  profile::Profile profile;
  uint64_t process_id = 0;
  std::string executable = {};
  absl::Time time = {};
};

// What a process's allocator reports about itself. Not to be trusted: the process can write anything there.
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
  // The latest processes that ended, most recent first.
  virtual absl::StatusOr<std::vector<EndedProcess>> Ended() = 0;

  virtual absl::StatusOr<ProfileSnapshot> Snapshot(pid_t pid) = 0;
  // Writes a dump into the collector's folder. Returns its path.
  virtual absl::StatusOr<std::string> Dump(pid_t pid) = 0;

  // FailedPrecondition: the process's allocator has no control block. Unavailable: its memory is not accessible.
  virtual absl::StatusOr<AllocatorFigures> Allocator(pid_t pid) = 0;
  virtual absl::Status SetActive(pid_t pid, bool active) = 0;
  // Without a rate: back to the rate of the collector's rules, or else of the process.
  virtual absl::Status SetRate(pid_t pid, std::optional<uint32_t> lg_sample) = 0;

  virtual absl::StatusOr<exporter::CollectorFigures> Figures() = 0;
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_COLLECTOR_H_
