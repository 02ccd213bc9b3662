// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/fill.h"

#include <string.h>

namespace heaptap {

[[gnu::cold, gnu::noinline]] void Fill(void* pointer, size_t usable) {
  if (core_options.fill_on_allocation == FillOnAllocation::kJunk) {
    memset(pointer, kAllocationJunk, usable);
  } else {
    Clear(pointer, usable);
  }
}

void FillGrown(void* pointer, size_t old_usable, size_t usable, bool is_zero, bool zero) {
  if (usable <= old_usable) return;
  char* grown = static_cast<char*>(pointer) + old_usable;
  if (zero || core_options.fill_on_allocation == FillOnAllocation::kZero) {
    if (!is_zero) memset(grown, 0, usable - old_usable);
  } else if (core_options.fill_on_allocation == FillOnAllocation::kJunk) {
    memset(grown, kAllocationJunk, usable - old_usable);
  }
}

}  // namespace heaptap
