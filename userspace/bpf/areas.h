// SPDX-License-Identifier: Apache-2.0
//
// Memory in which processes count their own samples (contract.h, AREAS).
//
// Part of a Books, and like it an interface. Thread-safe.
#ifndef HEAPTAP_USERSPACE_BPF_AREAS_H_
#define HEAPTAP_USERSPACE_BPF_AREAS_H_

#include <sys/types.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace heaptap::bpf {

class Areas {
 public:
  virtual ~Areas() = default;
  Areas(const Areas&) = delete;
  Areas& operator=(const Areas&) = delete;

  // Begins to make areas ahead, because a process does not wait until one is made.
  virtual absl::Status Prepare() = 0;
  // Gives the process its next area, if it has `number` so far. A process that did not take the last one gets it again.
  // Returns a descriptor of it, which stays this object's until the books are forgotten. Unavailable: none is ready.
  // ResourceExhausted: the process has as many as it may have. NotFound: it has ended, or has other books by now.
  virtual absl::StatusOr<int> Give(pid_t tgid, uint64_t process_id, uint32_t number) = 0;

 protected:
  Areas() = default;
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_AREAS_H_
