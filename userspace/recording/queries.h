// SPDX-License-Identifier: Apache-2.0
//
// What clients may ask of a system-wide recording (api/collector.h), and what they may change. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_RECORDING_QUERIES_H_
#define HEAPTAP_USERSPACE_RECORDING_QUERIES_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/bpf/books.h"
#include "userspace/profile/figures.h"
#include "userspace/profile/snapshot.h"
#include "userspace/recording/controls.h"
#include "userspace/recording/dumps.h"
#include "userspace/recording/live_blocks.h"
#include "userspace/recording/requests.h"
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

  // Made once after each ForgetSummaries, because it reads all tallies. Valid until the next ForgetSummaries, or a call
  // that changes a process.
  const std::vector<profile::ProcessSummary>& Summaries();
  // To be called when something may have changed. With very many call paths, the summaries stay for a time.
  void ForgetSummaries(absl::Time now);
  profile::ProcessSummary Summarise(const Target& target, const std::vector<bpf::TallyEntry>& tallies);
  absl::StatusOr<std::optional<uid_t>> Owner(const profile::ProcessRef& process);
  // ResourceExhausted, also of DumpOne: the user of the process has used up the time of the account, or stacks of the
  // process wait for unwind tables; ask again later.
  absl::StatusOr<profile::Snapshot> Snapshot(const profile::ProcessRef& process, const LiveBlocks* blocks = nullptr);
  // Whether Snapshot would be made now. For a caller who reads the blocks first, in a thread of its own.
  absl::Status MayRead(const profile::ProcessRef& process);
  absl::StatusOr<std::string> DumpOne(const profile::ProcessRef& process);
  absl::StatusOr<profile::AllocatorFigures> ReadAllocatorFigures(const profile::ProcessRef& process);
  // ResourceExhausted: the user of the process has used up the time of the account.
  absl::StatusOr<profile::ResidentBytes> Resident(const profile::ProcessRef& process);
  absl::Status SetActive(const profile::ProcessRef& process, bool active);
  absl::Status SetRate(const profile::ProcessRef& process, std::optional<uint32_t> lg_sample);
  // `events`: of the recording, by kind.
  profile::CollectorFigures Figures(const profile::CountsByName& events);
  // The process with the most live memory; none if none is recorded.
  std::optional<profile::ProcessRef> LargestProcess();
  // The recorded process that has this PID now.
  std::optional<profile::ProcessRef> FindProcess(pid_t pid);

 private:
  std::vector<profile::CoveragePart> CoverageOf(Target& target, double live);
  absl::StatusOr<profile::ResidentBytes> ResidentOf(const Target& target);
  absl::StatusOr<Target*> FindForClient(const profile::ProcessRef& process);
  // The same, if there is time for a profile.
  absl::StatusOr<Target*> FindForProfile(const profile::ProcessRef& process);
  std::vector<profile::ProcessSummary> MakeSummaries();

  const bpf::Books& books_;
  worker::Hands& hands_;
  TargetTable& targets_;
  Controls& controls_;
  Dumps& dumps_;
  Requests& requests_;
  std::optional<std::vector<profile::ProcessSummary>> summaries_;
  absl::Time summaries_made_ = absl::InfinitePast();
  absl::Duration summaries_cost_ = {};
  absl::Time active_read_ = absl::InfinitePast();
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_RECORDING_QUERIES_H_
