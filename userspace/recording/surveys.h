// SPDX-License-Identifier: Apache-2.0
//
// Surveys of all recorded processes, for the history (profile/survey.h). Not thread-safe.
#ifndef HEAPTAP_USERSPACE_RECORDING_SURVEYS_H_
#define HEAPTAP_USERSPACE_RECORDING_SURVEYS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "userspace/bpf/books.h"
#include "userspace/crews/hands.h"
#include "userspace/crews/looks.h"
#include "userspace/dumps/dumps.h"
#include "userspace/profile/survey.h"
#include "userspace/targets/controls.h"
#include "userspace/targets/target.h"
#include "userspace/targets/target_table.h"

namespace heaptap::recording {

class Surveys {
 public:
  // The most stacks that one call looks up, which takes about a millisecond.
  static constexpr size_t kMaxStacks = 500;

  // The objects that this one uses. They must outlive it.
  struct Means {
    const bpf::Books& books;
    worker::Looks& orders;
    TargetTable& targets;
    Dumps& dumps;
  };
  explicit Surveys(const Means& means) : means_(means) {}

  // A survey without call paths (survey_paths.h), from facts that have just been read (Readings::Refresh). `interval`:
  // the time between two calls.
  profile::Survey Take(const profile::Activities& known, absl::Duration interval);
  // Processes that have ended since Take count as unchanged: their tallies may have been deleted while they were read.
  void ForgetEnded(profile::Survey& survey) const;
  // The stacks with these ids, at most kMaxStacks. Calls `done` once, at once or later. NotFound: the process has
  // ended. ResourceExhausted: hands have no time for its files; ask again later.
  using StacksDone = std::function<void(absl::StatusOr<profile::SurveyedStacks>)>;
  void Stacks(const profile::ProcessRef& process, absl::Span<const uint64_t> stack_ids, const StacksDone& done);

 private:
  // The stacks without the versions of their files.
  profile::SurveyedStacks ReadStacks(const Target& target, absl::Span<const uint64_t> stack_ids);

  const Means means_;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_RECORDING_SURVEYS_H_
