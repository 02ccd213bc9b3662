// SPDX-License-Identifier: Apache-2.0
//
// What clients may ask of a system-wide recording (api/collector.h), and what they may change. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_RECORDING_QUERIES_H_
#define HEAPTAP_USERSPACE_RECORDING_QUERIES_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "heaptap/contract.h"
#include "userspace/base/clock.h"
#include "userspace/base/thread_checker.h"
#include "userspace/bpf/books.h"
#include "userspace/crews/looks.h"
#include "userspace/dumps/dumps.h"
#include "userspace/dumps/requests.h"
#include "userspace/profile/figures.h"
#include "userspace/profile/snapshot.h"
#include "userspace/profiles/profile_plan.h"
#include "userspace/profiles/tally_sums.h"
#include "userspace/targets/controls.h"
#include "userspace/targets/readings.h"
#include "userspace/targets/target.h"
#include "userspace/targets/target_table.h"

namespace heaptap::recording {

class Queries {
 public:
  template <typename Answer>
  using Done = std::function<void(absl::StatusOr<Answer>)>;
  // The facts from which the parts of the resident memory follow.
  struct CoverageFacts {
    std::optional<heaptap_statistics> statistics = {};  // of libheaptap.so
    std::optional<profile::ResidentBytes> resident = {};
  };
  // The objects that this one uses. They must outlive it.
  struct Means {
    const bpf::Books& books;
    worker::Looks& orders;
    TargetTable& targets;
    Controls& controls;
    Readings& readings;
    Dumps& dumps;
    Requests& requests;
  };
  explicit Queries(const Means& means) : means_(means) {}

  // The summaries of all processes, if they are known. Otherwise they are made in three steps. This is the first step:
  // it reads what processes change without an event, and takes the frees that they hold back, as far as they answer
  // soon. Another thread does the second step, SumAllTallies, when the first one is over.
  std::optional<std::vector<profile::ProcessSummary>> PlanSummaries();
  bool HasPlannedSummaries(base::Instant now);
  // The third step. `cost`: of SumAllTallies.
  std::vector<profile::ProcessSummary> MakeSummaries(const absl::flat_hash_map<uint64_t, TallySums>& sums,
                                                     absl::Duration cost);
  // To be called when something may have changed. With very many call paths, the summaries stay for a time.
  void ForgetSummaries(base::Instant now);
  profile::ProcessSummary Summarise(const Target& target, const TallySums& sums, const bpf::Losses& losses);
  // The owner, read at `asked` or later. ResourceExhausted: ask again.
  absl::StatusOr<std::optional<uid_t>> Owner(const profile::ProcessRef& process, base::Instant asked);

  // A profile is made in three steps. Another thread does the second step, BuildPlanned. The other steps call `done`
  // once, at once or later. ResourceExhausted: stacks of the process wait for unwind tables; ask again later.
  using PlanDone = std::function<void(absl::StatusOr<ProfilePlan>)>;
  void Plan(const profile::ProcessRef& process, const PlanDone& done);
  // Takes `built->profile`; nobody else uses it until `done`. `facts`: for the parts of the resident memory.
  using FinishDone = std::function<void(absl::StatusOr<profile::Snapshot>)>;
  void Finish(const ProfilePlan& plan, const std::shared_ptr<BuiltProfile>& built,
              const std::optional<CoverageFacts>& facts, const FinishDone& done);
  // The next step for a dump, after Dumps::Fill: reports it, and returns its path.
  absl::StatusOr<std::string> Publish(const profile::ProcessRef& process, const Dumps::Filled& filled);
  // Writes a dump that no account pays for, in the background, which prints its errors.
  absl::Status DumpOne(const profile::ProcessRef& process);

  // Hands answer these, so `done` may be called later. ResourceExhausted: ask again.
  void ReadCoverage(const profile::ProcessRef& process, Done<CoverageFacts> done);
  void ReadAllocatorFigures(const profile::ProcessRef& process, Done<profile::AllocatorFigures> done);
  void Resident(const profile::ProcessRef& process, Done<profile::ResidentBytes> done);
  using StatusDone = std::function<void(absl::Status)>;
  void SetActive(const profile::ProcessRef& process, bool active, StatusDone done);
  void SetRate(const profile::ProcessRef& process, std::optional<uint32_t> lg_sample, StatusDone done);
  // `events`: of the recording, by kind.
  profile::CollectorFigures Figures(std::vector<profile::ProcessSummary> processes,
                                    const profile::CountsByName& events);
  // The process with the most live memory; none if none is recorded.
  std::optional<profile::ProcessRef> LargestProcess();
  // The recorded process that has this PID now.
  std::optional<profile::ProcessRef> FindProcess(pid_t pid);
  // Like FindProcess, for a client who asked at `asked`. The owner was read a second before that at the earliest. If
  // the process is slow, the owner that was read last counts. ResourceExhausted: it is being read; ask again.
  absl::StatusOr<profile::NamedProcess> Find(pid_t pid, base::Instant asked);

 private:
  void ReadResident(const Target& target, Done<profile::ResidentBytes> done);
  absl::StatusOr<Target*> FindForClient(const profile::ProcessRef& process);

  const Means means_;
  std::shared_ptr<const size_t> taking_;  // orders of PlanSummaries that are under way; null: none yet
  base::Instant taking_ends_ = base::Instant::InfinitePast();
  bool are_read_ = false;  // the processes, for the summaries
  std::optional<std::vector<profile::ProcessSummary>> summaries_;
  base::Instant summaries_made_ = base::Instant::InfinitePast();
  absl::Duration summaries_cost_ = {};
  base::ThreadChecker thread_;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_RECORDING_QUERIES_H_
