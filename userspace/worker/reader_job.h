// SPDX-License-Identifier: Apache-2.0
//
// The form of a job that a reader does (reader_jobs.h).
#ifndef HEAPTAP_USERSPACE_WORKER_READER_JOB_H_
#define HEAPTAP_USERSPACE_WORKER_READER_JOB_H_

#include <map>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "userspace/worker/request.h"

namespace heaptap::worker {

// What a reader is given: descriptors that stay the caller's.
struct ReaderInput {
  int file = -1;
  std::vector<int> others = {};  // of Request::descriptors, then of Request::paths; negative: could not be opened
  absl::string_view question = {};
};

// Writes a part of the answer. Ends the process if the collector no longer reads.
using WritePart = absl::FunctionRef<void(absl::string_view)>;

using ReaderJob = absl::Status (*)(const ReaderInput& input, WritePart write);
using ReaderJobs = std::map<Job, ReaderJob>;

}  // namespace heaptap::worker

#endif  // HEAPTAP_USERSPACE_WORKER_READER_JOB_H_
