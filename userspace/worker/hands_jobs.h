// SPDX-License-Identifier: Apache-2.0
//
// The jobs that hands answer themselves (worker.h): what the collector needs of other processes, and might have to wait
// for. An exec that is stalled by its user's file system holds a lock that opening /proc/PID/{mem,maps,map_files}
// needs.
#ifndef HEAPTAP_USERSPACE_WORKER_HANDS_JOBS_H_
#define HEAPTAP_USERSPACE_WORKER_HANDS_JOBS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "userspace/worker/hands_output.h"
#include "userspace/worker/request.h"

namespace heaptap::worker {

// What to do with a control block (process/control_block.h).
enum class ControlVerb : uint32_t { kRead, kTake, kRelease, kTablesReady, kActive };
// The question of Job::kControl; the answer to kRead is a heaptap_control.
struct ControlOrder {
  ControlVerb verb = ControlVerb::kRead;
  uint32_t argument = 0;
  uint32_t follows = 0;    // of kTake: HEAPTAP_COLLECTOR_*
  uint32_t collector = 0;  // PID of the collector
  uint64_t address = 0;
};

// Job::kStart answers with the process::StartFacts.

// The question of Job::kPendingFrees is the address of the process's struct heaptap_pending; the answer: its entries.

// The question of Job::kMemoryUse: PIDs of 32 bits. The answer: a process::MemoryUse for each, in their order.

// The answer to Job::kResidency: a profile::ResidentBytes.

bool IsHandsJob(Job job);
// `descriptors`: Request::descriptors. Returns the end of the answer.
absl::Status DoHandsJob(const Request& request, absl::Span<const int> descriptors, const HandsOutput& output);

}  // namespace heaptap::worker

#endif  // HEAPTAP_USERSPACE_WORKER_HANDS_JOBS_H_
