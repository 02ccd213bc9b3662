// SPDX-License-Identifier: Apache-2.0
#include "allocator/process/configuration.h"

namespace heaptap {

CoreOptions CoreOptionsOf(const Configuration& configuration) {
  CoreOptions options{};
  options.fill_on_allocation = configuration.zero         ? FillOnAllocation::kZero
                               : configuration.junk_alloc ? FillOnAllocation::kJunk
                                                          : FillOnAllocation::kNothing;
  options.fill_on_free = configuration.junk_free;
  options.abort_invalid_free = configuration.abort_invalid_free;
  options.xmalloc = configuration.xmalloc;
  options.debug_check = configuration.debug_check;
  options.thp = configuration.thp;
  return options;
}

}  // namespace heaptap
