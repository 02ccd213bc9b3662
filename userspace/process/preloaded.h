// SPDX-License-Identifier: Apache-2.0
//
// Finds running processes that have a sampled allocator, recorded or not, and their control blocks.
//
// Thread-compatible.
#ifndef HEAPTAP_USERSPACE_PROCESS_PRELOADED_H_
#define HEAPTAP_USERSPACE_PROCESS_PRELOADED_H_

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
#include "userspace/process/handle.h"

namespace heaptap::process {

// A process with a sampled allocator. The fields of its control block are the process's claims.
struct Preloaded {
  Handle process;
  std::string command;           // printable
  uint64_t control_address = 0;  // in the process; 0: the allocator has no control block
  heaptap_control control = {};  // a copy
  pid_t collector = 0;           // another living collector that records the process; 0: none
};

class PreloadedFinder {
 public:
  // NotFound: no such process, or it has no sampled allocator. PermissionDenied. InvalidArgument: an invalid control
  // block, or one of another version.
  absl::StatusOr<Preloaded> Find(pid_t pid);

  struct All {
    std::vector<Preloaded> processes;  // by PID
    size_t refused = 0;                // processes that this user may not inspect
  };
  // All processes of this PID namespace. FailedPrecondition: /proc cannot be read.
  absl::StatusOr<All> FindAll();

 private:
  // Device and inode of files without a sampled allocator. Most processes map the same files.
  std::set<std::tuple<uint32_t, uint32_t, uint64_t>> without_samples_;
};

}  // namespace heaptap::process

#endif  // HEAPTAP_USERSPACE_PROCESS_PRELOADED_H_
