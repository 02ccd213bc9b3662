// SPDX-License-Identifier: Apache-2.0
//
// The frees of samples that a process holds back from its collector (allocator/include/heaptap/contract.h,
// heaptap:frees). Thread-safe.
#ifndef HEAPTAP_USERSPACE_PROCESS_PENDING_FREES_H_
#define HEAPTAP_USERSPACE_PROCESS_PENDING_FREES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "heaptap/contract.h"
#include "userspace/process/handle.h"

namespace heaptap::process {

// Reads the struct heaptap_pending at `address`, while the process may change it: at most HEAPTAP_SLOTS *
// HEAPTAP_SLOT_FREES entries, unverified.
absl::StatusOr<std::vector<heaptap_free>> ReadPendingFrees(const Handle& process, uint64_t address);

}  // namespace heaptap::process

#endif  // HEAPTAP_USERSPACE_PROCESS_PENDING_FREES_H_
