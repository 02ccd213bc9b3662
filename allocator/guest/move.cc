// SPDX-License-Identifier: Apache-2.0
#include "allocator/guest/move.h"

#include <stddef.h>

#include "allocator/guest/copy.h"
#include "allocator/guest/host.h"
#include "allocator/guest/samples.h"

namespace heaptap {

void* MoveToSample(void* pointer, void* sample, size_t size) {
  size_t kept = size;
  if (host_facts.has_usable_size) {
    const size_t usable = host.malloc_usable_size(pointer);
    if (usable < size) kept = usable;
  } else {
    // Only the host knows how long the block is.
    void* resized = host.realloc(pointer, size);
    if (resized == nullptr && size != 0) return nullptr;
    pointer = resized;
  }
  if (pointer == nullptr) return sample;
  CopyTo(sample, ReadsAsZero(sample), pointer, kept);
  host.free(pointer);
  return sample;
}

}  // namespace heaptap
