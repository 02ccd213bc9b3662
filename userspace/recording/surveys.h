// SPDX-License-Identifier: Apache-2.0
//
// Surveys of all recorded processes, for the history (profile/survey.h). Not thread-safe.
#ifndef HEAPTAP_USERSPACE_RECORDING_SURVEYS_H_
#define HEAPTAP_USERSPACE_RECORDING_SURVEYS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "userspace/bpf/books.h"
#include "userspace/profile/survey.h"
#include "userspace/recording/controls.h"
#include "userspace/recording/dumps.h"
#include "userspace/recording/target_table.h"
#include "userspace/worker/hands.h"

namespace heaptap::recording {

class Surveys {
 public:
  // Stacks that one call looks up: about a millisecond.
  static constexpr size_t kMaxStacks = 500;

  // What it needs of others, which must outlive this object.
  struct Means {
    const bpf::Books& books;
    worker::Hands& hands;
    TargetTable& targets;
    Dumps& dumps;
  };
  explicit Surveys(const Means& means)
      : books_(means.books), hands_(means.hands), targets_(means.targets), dumps_(means.dumps) {}

  // Without call paths (survey_paths.h), of facts that have just been read (Readings::Refresh). `interval`: between two
  // calls.
  profile::Survey Take(const profile::Activities& known, absl::Duration interval);
  // Processes that have ended since Take count as unchanged: their tallies may have been deleted while they were read.
  void ForgetEnded(profile::Survey& survey) const;
  // NotFound: the process has ended. At most kMaxStacks.
  absl::StatusOr<profile::SurveyedStacks> Stacks(const profile::ProcessRef& process,
                                                 absl::Span<const uint64_t> stack_ids);

 private:
  const bpf::Books& books_;
  worker::Hands& hands_;
  TargetTable& targets_;
  Dumps& dumps_;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_RECORDING_SURVEYS_H_
