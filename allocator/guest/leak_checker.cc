// SPDX-License-Identifier: Apache-2.0
#include "allocator/guest/leak_checker.h"

#include <stddef.h>

#include <atomic>

#include "allocator/guest/early_blocks.h"
#include "allocator/guest/host.h"
#include "allocator/guest/range.h"

namespace heaptap {

void TellLeakChecker() {
  void* found = FindInHost("__lsan_register_root_region");
  if (found == nullptr) return;
  // The range is chosen when its first block is taken. This block is never freed.
  if (TakeEarlyBlock(1) == nullptr) return;
  // The sanitizer reads only what is accessible.
  reinterpret_cast<void (*)(const void*, size_t)>(found)(
      reinterpret_cast<const void*>(guest_range.begin.load(std::memory_order_relaxed)),
      guest_range.bytes.load(std::memory_order_relaxed));
}

}  // namespace heaptap
