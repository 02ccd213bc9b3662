// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/invalid_free.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <atomic>
#include <iterator>

#include "allocator/core/control.h"
#include "allocator/core/options.h"
#include "allocator/platform/system.h"

namespace heaptap {
namespace {

// Indexed by InvalidFree.
constexpr const char* kWhat[] = {"the pointer comes from another allocator", "the block is already free",
                                 "no block begins there"};

}  // namespace

void RefuseFree(const void* pointer, InvalidFree kind) {
  static constinit std::atomic<bool> reported[std::size(kWhat)];
  const bool aborts = core_options.abort_invalid_free;
  AddToFigure(&heaptap_statistics::foreign_frees, 1);
  if (reported[static_cast<size_t>(kind)].exchange(true, std::memory_order_relaxed) && !aborts) return;
  Message message;
  message << "<heaptap>: " << (aborts ? "invalid free of " : "ignored an invalid free of ") << pointer << ": "
          << kWhat[static_cast<size_t>(kind)]
          << (aborts ? "; aborting\n" : " (reported once; MALLOC_CONF=abort_invalid_free:true aborts instead)\n");
  message.Print();
  if (aborts) abort();
}

}  // namespace heaptap
