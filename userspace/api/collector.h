// SPDX-License-Identifier: Apache-2.0
//
// What clients may ask of a running collector: the interface between the recording, which one thread owns, and the
// threads that answer requests (HTTP).
//
// All calls are thread-safe. They wait for the recording's thread for at most kPatience, then return Unavailable. PIDs
// are those of the initial PID namespace; process ids keep an order from reaching a later process with the same PID.
// NotFound: the process is not recorded, or has ended.
#ifndef HEAPTAP_USERSPACE_API_COLLECTOR_H_
#define HEAPTAP_USERSPACE_API_COLLECTOR_H_

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
#include "userspace/http/client_time.h"
#include "userspace/profile/coverage.h"
#include "userspace/profile/figures.h"
#include "userspace/profile/profile.h"
#include "userspace/profile/snapshot.h"
#include "userspace/profile/survey.h"

namespace heaptap::api {

class Collector {
 public:
  static constexpr absl::Duration kPatience = absl::Seconds(10);

  virtual ~Collector() = default;

  // By PID. All clients share the cost.
  virtual absl::StatusOr<std::vector<profile::ProcessSummary>> Processes(http::Asker& asker) = 0;
  // What clients may be told of the process with this PID. Cheap, unlike Processes: the call reads nothing of other
  // processes.
  virtual absl::StatusOr<profile::NamedProcess> Find(pid_t pid, http::Asker& asker) = 0;
  // The user who may look at the process besides root; none: there is no such user.
  virtual absl::StatusOr<std::optional<uid_t>> Owner(const profile::ProcessRef& process) = 0;
  // The latest processes that ended, most recent first.
  virtual absl::StatusOr<std::vector<profile::EndedProcess>> Ended() = 0;

  // One profile at a time is made, and users take turns. ResourceExhausted: the asker has no time left (Asker::Pay).
  virtual absl::StatusOr<profile::Snapshot> Snapshot(const profile::ProcessRef& process, http::Asker& asker) = 0;
  // Like Snapshot, with blocks by size and age.
  virtual absl::StatusOr<profile::Snapshot> DetailedSnapshot(const profile::ProcessRef& process,
                                                             http::Asker& asker) = 0;
  // Writes a dump into the collector's folder. Returns its path.
  virtual absl::StatusOr<std::string> Dump(const profile::ProcessRef& process, http::Asker& asker) = 0;

  // FailedPrecondition: the process's allocator has no control block. Unavailable: its memory is not accessible.
  virtual absl::StatusOr<profile::AllocatorFigures> Allocator(const profile::ProcessRef& process) = 0;
  // The memory of the process, heap or not.
  virtual absl::StatusOr<profile::ResidentBytes> Resident(const profile::ProcessRef& process, http::Asker& asker) = 0;
  virtual absl::Status SetActive(const profile::ProcessRef& process, bool active) = 0;
  // Without a rate, the process goes back to the rate of the collector's rules, or else to its own rate.
  virtual absl::Status SetRate(const profile::ProcessRef& process, std::optional<uint32_t> lg_sample) = 0;

  virtual absl::StatusOr<profile::CollectorFigures> Figures(http::Asker& asker) = 0;
  // Whether the recording's thread works. Does not ask the thread and does not wait. Unavailable: the thread has not
  // worked for kPatience.
  virtual absl::Status Health() const = 0;
  // Whether only processes of some control groups, or with some files, may be recorded.
  virtual bool IsRestricted() const = 0;
  // Waits until all that the kernel knew at the call is in books, tables and history.
  virtual absl::Status Settle() = 0;

  // For the history. `known`: the activities of the last survey; `interval`: the time between two surveys. Without
  // paths, no process counts as changed. With paths, the calling thread reads them, so that its processor time tells
  // what they cost.
  virtual absl::StatusOr<profile::Survey> Survey(const profile::Activities& known, absl::Duration interval,
                                                 bool with_paths) = 0;
  // At most recording::Surveys::kMaxStacks stacks at a time.
  virtual absl::StatusOr<profile::SurveyedStacks> Stacks(const profile::ProcessRef& process,
                                                         const std::vector<uint64_t>& stack_ids) = 0;
};

}  // namespace heaptap::api

#endif  // HEAPTAP_USERSPACE_API_COLLECTOR_H_
