// SPDX-License-Identifier: Apache-2.0
//
// Finds a sampled allocator by the notes of its probes (allocator/include/heaptap/contract.h). Thread-safe.
#ifndef HEAPTAP_USERSPACE_PROCESS_ALLOCATOR_PROBES_H_
#define HEAPTAP_USERSPACE_PROCESS_ALLOCATOR_PROBES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "userspace/elf/probes.h"

namespace heaptap::process {

// The probe sites of a file.
struct AllocatorProbes {
  std::vector<elf::ProbeSite> sites;  // of the providers otel_memory and heaptap
  bool HasSamples() const;            // whether otel_memory:alloc and otel_memory:free are among them
  bool HasPendingFrees() const;       // whether the allocator numbers its samples (heaptap:frees)
};

// Reads the notes of the file open at `fd`. The result has no sites if the file has none. InvalidArgument: unusable
// notes.
absl::StatusOr<AllocatorProbes> ReadAllocatorProbes(int fd);

}  // namespace heaptap::process

#endif  // HEAPTAP_USERSPACE_PROCESS_ALLOCATOR_PROBES_H_
