// SPDX-License-Identifier: Apache-2.0
//
// The job of hands that answers HEAPTAP_ASK_AREA (contract.h).
#ifndef HEAPTAP_USERSPACE_WORKER_AREA_JOB_H_
#define HEAPTAP_USERSPACE_WORKER_AREA_JOB_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "userspace/worker/hands_output.h"
#include "userspace/worker/request.h"

namespace heaptap::worker {

// Which socket gets the answer. A process that has stopped waiting may have another file under the descriptor.
struct AreaSocket {
  uint64_t cookie;  // SO_COOKIE
  int64_t descriptor;
};

// The question of Job::kGiveArea: an AreaSocket. `descriptors`: the area, or none to refuse. Sends the answer without
// waiting. InvalidArgument: the process has no such socket. NotFound: it has ended.
absl::Status GiveArea(const Request& request, absl::Span<const int> descriptors, const HandsOutput& output);

}  // namespace heaptap::worker

#endif  // HEAPTAP_USERSPACE_WORKER_AREA_JOB_H_
