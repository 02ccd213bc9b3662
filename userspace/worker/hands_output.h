// SPDX-License-Identifier: Apache-2.0
//
// What a job of hands can send to its collector, and ask it (worker.cc).
#ifndef HEAPTAP_USERSPACE_WORKER_HANDS_OUTPUT_H_
#define HEAPTAP_USERSPACE_WORKER_HANDS_OUTPUT_H_

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace heaptap::worker {

// The way back to the collector.
struct HandsOutput {
  absl::FunctionRef<void(absl::string_view bytes)> write;
  // One of Answer::files; stays the caller's.
  absl::FunctionRef<void(int file)> hand_up;
  // Whether the process is still the right one, now that it is open.
  absl::FunctionRef<bool()> confirm;
};

}  // namespace heaptap::worker

#endif  // HEAPTAP_USERSPACE_WORKER_HANDS_OUTPUT_H_
