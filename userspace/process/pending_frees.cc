// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/pending_frees.h"

#include <stddef.h>

#include <algorithm>

namespace heaptap::process {

absl::StatusOr<std::vector<heaptap_free>> ReadPendingFrees(const Handle& process, uint64_t address) {
  uint64_t used = 0;
  absl::Status status = process.Read(address + offsetof(heaptap_pending, used), &used, sizeof(used));
  if (!status.ok()) return status;
  std::vector<heaptap_slot> slots(std::min<uint64_t>(used, HEAPTAP_SLOTS));
  status = process.Read(address + offsetof(heaptap_pending, slots), slots.data(), slots.size() * sizeof(heaptap_slot));
  if (!status.ok()) return status;
  std::vector<heaptap_free> frees;
  for (const heaptap_slot& slot : slots) {
    frees.insert(frees.end(), slot.frees, slot.frees + std::min<uint32_t>(slot.count, HEAPTAP_SLOT_FREES));
  }
  return frees;
}

}  // namespace heaptap::process
