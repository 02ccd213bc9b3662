// SPDX-License-Identifier: Apache-2.0
//
// The main program of a worker (crew.h).
#ifndef HEAPTAP_USERSPACE_WORKER_WORKER_H_
#define HEAPTAP_USERSPACE_WORKER_WORKER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "userspace/worker/request.h"

namespace heaptap::worker {

// The command line of a worker: its name, and its kind.
inline constexpr char kWorkerName[] = "heaptap-worker";
inline constexpr char kHandsName[] = "hands";
inline constexpr char kReaderName[] = "reader";
inline constexpr char kForegroundReaderName[] = "foreground-reader";

// In the first byte of a request on its way to the hands: its bytes come in a file of their own (PutInFile), which is
// the first descriptor; the job's file comes open, as the last descriptor. Request::descriptors come between.
inline constexpr uint8_t kLongRequest = 1;
inline constexpr uint8_t kOpenFile = 2;

// What a reader is given: descriptors that stay the caller's.
struct ReaderInput {
  int file = -1;
  std::vector<int> others = {};  // of Request::paths; negative: could not be opened
  absl::string_view question = {};
};

// Writes a part of the answer. Ends the process if the collector no longer reads.
using WritePart = absl::FunctionRef<void(absl::string_view)>;

using ReaderJob = absl::Status (*)(const ReaderInput& input, WritePart write);
using ReaderJobs = std::map<Job, ReaderJob>;

// If this process was started as a worker, it works and ends here. Call it first in main, before any thread exists.
// `jobs`: what a reader can do.
void RunIfWorker(int argc, char** argv, const ReaderJobs& jobs);

}  // namespace heaptap::worker

#endif  // HEAPTAP_USERSPACE_WORKER_WORKER_H_
