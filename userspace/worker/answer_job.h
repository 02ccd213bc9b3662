// SPDX-License-Identifier: Apache-2.0
//
// The job of hands that answers the request of a process for a dump (process/dump_request.h). The hands write into a
// file that the process opened, and into its memory; the process can make both wait for ever. They may join the
// process's memory group, so they must end afterwards (Crews::DoByHands).
#ifndef HEAPTAP_USERSPACE_WORKER_ANSWER_JOB_H_
#define HEAPTAP_USERSPACE_WORKER_ANSWER_JOB_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "userspace/profile/profile.h"
#include "userspace/worker/hands_output.h"
#include "userspace/worker/request.h"

namespace heaptap::worker {

// The question of Job::kAnswer; the contents follow.
struct DumpAnswer {
  uint64_t address = 0;   // of the request
  uint64_t sequence = 0;  // of the request that is answered; 0: any request
  int64_t error = 0;      // an errno value, instead of contents
  profile::LeakSummary leaks = {};
};
std::string AnswerQuestion(const DumpAnswer& answer, absl::string_view contents);

// Answers after Request::confirm has returned true. Returns the end of the answer (DoHandsJob); its bytes are empty. OK
// also if the process has ended, or no longer waits for this answer.
absl::Status AnswerDump(const Request& request, const HandsOutput& output);

}  // namespace heaptap::worker

#endif  // HEAPTAP_USERSPACE_WORKER_ANSWER_JOB_H_
