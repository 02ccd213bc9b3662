// SPDX-License-Identifier: Apache-2.0
//
// The main program of a worker (crew.h).
#ifndef HEAPTAP_USERSPACE_WORKER_WORKER_H_
#define HEAPTAP_USERSPACE_WORKER_WORKER_H_

#include <cstdint>

#include "userspace/worker/reader_job.h"

namespace heaptap::worker {

// The command line of a worker: its name, and its kind.
inline constexpr char kWorkerName[] = "heaptap-worker";
inline constexpr char kHandsName[] = "hands";
inline constexpr char kReaderName[] = "reader";
inline constexpr char kForegroundReaderName[] = "foreground-reader";

// Flags in the first byte of a request to the hands. kLongRequest: the bytes of the request come in a file of their own
// (PutInFile), which is the first descriptor. kOpenFile: the job's file comes open, as the last descriptor.
// Request::descriptors come between them.
inline constexpr uint8_t kLongRequest = 1;
inline constexpr uint8_t kOpenFile = 2;

// If this process was started as a worker, it works and ends here. Call it first in main, before any thread exists.
// `jobs`: what a reader can do.
void RunIfWorker(int argc, char** argv, const ReaderJobs& jobs);

}  // namespace heaptap::worker

#endif  // HEAPTAP_USERSPACE_WORKER_WORKER_H_
