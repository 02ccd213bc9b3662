// SPDX-License-Identifier: Apache-2.0
//
// Finds running processes that have a sampled allocator, recorded or not, and their control blocks.
//
// Thread-compatible.
#ifndef HEAPTAP_USERSPACE_SERVICE_PRELOADED_H_
#define HEAPTAP_USERSPACE_SERVICE_PRELOADED_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "heaptap/contract.h"
#include "userspace/service/process_handle.h"

namespace heaptap::service {

// A process with a sampled allocator. All that its control block says is the process's claim.
struct Preloaded {
  ProcessHandle process;
  std::string command;           // printable
  uint64_t control_address = 0;  // in the process; 0: its allocator has no control block
  heaptap_control control = {};  // as it was read
  pid_t collector = 0;           // the living collector that records it, other than this process; 0: none
};

class PreloadedFinder {
 public:
  // NotFound: no such process, or no sampled allocator in it. PermissionDenied. InvalidArgument: a control block that
  // is none, or of another version.
  absl::StatusOr<Preloaded> Find(pid_t pid);

  struct All {
    std::vector<Preloaded> processes;  // by PID
    size_t refused = 0;                // processes that we may not look at
  };
  // Those of this PID name space. FailedPrecondition: /proc cannot be read.
  absl::StatusOr<All> FindAll();

 private:
  // Device, inode: files that were looked at and have no samples. Most processes map the same ones.
  std::set<std::tuple<uint32_t, uint32_t, uint64_t>> without_samples_;
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_PRELOADED_H_
