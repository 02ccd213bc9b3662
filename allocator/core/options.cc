// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/options.h"

#include <stdlib.h>

#include "allocator/core/control.h"
#include "allocator/core/slab.h"
#include "allocator/platform/system.h"

namespace heaptap {

constinit CoreOptions core_options{};

void SetCoreOptions(CoreOptions options) {
  const bool is_slow =
      options.fill_on_free || options.fill_on_allocation != FillOnAllocation::kNothing || options.abort_invalid_free;
  options.owner_bits = is_slow ? kSlowBit : 0;
  HEAPTAP_ASSERT(ReadFigure(&heaptap_statistics::mapped) == 0 || options.owner_bits == core_options.owner_bits);
  core_options = options;
}

void AbortIfXmalloc(const char* error) {
  if (!core_options.xmalloc) return;
  Message message;
  message << "<jemalloc>: " << error << ": out of memory\n";
  message.Print();
  abort();
}

}  // namespace heaptap
