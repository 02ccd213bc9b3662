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
#include "userspace/base/clock.h"
#include "userspace/bpf/books.h"
#include "userspace/profile/figures.h"
#include "userspace/profile/snapshot.h"
#include "userspace/recording/controls.h"
#include "userspace/recording/dumps.h"
#include "userspace/recording/profile_plan.h"
#include "userspace/recording/requests.h"
#include "userspace/recording/tally_sums.h"
#include "userspace/recording/target.h"
#include "userspace/recording/target_table.h"
#include "userspace/worker/hands.h"

namespace heaptap::recording {

class Queries {
 public:
  // What it needs of others, which must outlive this object.
  struct Means {
    const bpf::Books& books;
    worker::Hands& hands;
    TargetTable& targets;
    Controls& controls;
    Dumps& dumps;
    Requests& requests;
  };
  explicit Queries(const Means& means)
      : books_(means.books),
        hands_(means.hands),
        targets_(means.targets),
        controls_(means.controls),
        dumps_(means.dumps),
        requests_(means.requests) {}

  // The summaries of all processes, if they are known. Otherwise they are made in three steps, of which this is the
  // first, and another thread does the second one, SumAllTallies, when the first one is over: it takes the frees that
  // processes hold back, as far as these answer soon.
  std::optional<std::vector<profile::ProcessSummary>> PlanSummaries();
  bool HasPlannedSummaries(base::Instant now) const;
  // The third step. `cost`: of SumAllTallies.
  std::vector<profile::ProcessSummary> MakeSummaries(const absl::flat_hash_map<uint64_t, TallySums>& sums,
                                                     absl::Duration cost);
  // To be called when something may have changed. With very many call paths, the summaries stay for a time.
  void ForgetSummaries(base::Instant now);
  profile::ProcessSummary Summarise(const Target& target, const TallySums& sums);
  absl::StatusOr<std::optional<uid_t>> Owner(const profile::ProcessRef& process);

  // A profile is made in three steps, of which another thread does the second one, BuildPlanned. The others call `done`
  // once, at once or later.
  // ResourceExhausted: stacks of the process wait for unwind tables; ask again later.
  using PlanDone = std::function<void(absl::StatusOr<ProfilePlan>)>;
  void Plan(const profile::ProcessRef& process, const PlanDone& done);
  // Takes `built->profile`; nobody else uses it until `done`. `with_coverage`: with the parts of the resident memory.
  using FinishDone = std::function<void(absl::StatusOr<profile::Snapshot>)>;
  void Finish(const ProfilePlan& plan, const std::shared_ptr<BuiltProfile>& built, bool with_coverage,
              const FinishDone& done);
  // The next step for a dump, after Dumps::Fill: reports it, and returns its path.
  absl::StatusOr<std::string> Publish(const profile::ProcessRef& process, const Dumps::Filled& filled);
  // A dump that no account pays for, in the background, which prints its errors.
  absl::Status DumpOne(const profile::ProcessRef& process);

  absl::StatusOr<profile::AllocatorFigures> ReadAllocatorFigures(const profile::ProcessRef& process);
  absl::StatusOr<profile::ResidentBytes> Resident(const profile::ProcessRef& process);
  absl::Status SetActive(const profile::ProcessRef& process, bool active);
  absl::Status SetRate(const profile::ProcessRef& process, std::optional<uint32_t> lg_sample);
  // `events`: of the recording, by kind.
  profile::CollectorFigures Figures(std::vector<profile::ProcessSummary> processes,
                                    const profile::CountsByName& events);
  // The process with the most live memory; none if none is recorded.
  std::optional<profile::ProcessRef> LargestProcess();
  // The recorded process that has this PID now.
  std::optional<profile::ProcessRef> FindProcess(pid_t pid);

 private:
  profile::ProcessSummary Summarise(const Target& target, const TallySums& sums, const bpf::Losses& losses);
  std::vector<profile::CoveragePart> CoverageOf(Target& target, double live);
  void AddResidentBytes(std::vector<profile::ProcessSummary>& summaries);
  absl::StatusOr<profile::ResidentBytes> ResidentOf(const Target& target);
  absl::StatusOr<Target*> FindForClient(const profile::ProcessRef& process);

  const bpf::Books& books_;
  worker::Hands& hands_;
  TargetTable& targets_;
  Controls& controls_;
  Dumps& dumps_;
  Requests& requests_;
  std::shared_ptr<const size_t> taking_;  // orders of PlanSummaries that are under way; null: none yet
  base::Instant taking_ends_ = base::Instant::InfinitePast();
  std::optional<std::vector<profile::ProcessSummary>> summaries_;
  base::Instant summaries_made_ = base::Instant::InfinitePast();
  absl::Duration summaries_cost_ = {};
  base::Instant active_read_ = base::Instant::InfinitePast();
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_RECORDING_QUERIES_H_
