// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/decay.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <atomic>

#include "allocator/core/control.h"
#include "allocator/platform/assert.h"

namespace heaptap {
namespace {

// Less than a tenth of a process that holds 1 GiB.
constexpr size_t kDirtyLeast = size_t{64} << 20;
constexpr size_t kDirtyShare = 3;

constinit std::atomic<ssize_t> dirty_decay;

}  // namespace

ssize_t DirtyDecay() { return dirty_decay.load(std::memory_order_relaxed); }

void SetDirtyDecay(ssize_t milliseconds) {
  HEAPTAP_ASSERT(milliseconds >= -1);
  dirty_decay.store(milliseconds, std::memory_order_relaxed);
}

size_t DirtyBound() {
  return DirtyDecay() < 0 ? SIZE_MAX : kDirtyLeast + ReadFigure(&heaptap_statistics::active) / kDirtyShare;
}

}  // namespace heaptap
