// SPDX-License-Identifier: Apache-2.0
#include "fill.h"

#include "slab.h"

namespace heaptap {

constinit FillOptions fill_options{};

void StartFill(const Configuration& configuration) {
  fill_options.on_free = configuration.junk_free;
  fill_options.on_allocation = configuration.zero         ? FillOnAllocation::kZero
                               : configuration.junk_alloc ? FillOnAllocation::kJunk
                                                          : FillOnAllocation::kNothing;
  bool anything = fill_options.on_free || fill_options.on_allocation != FillOnAllocation::kNothing ||
                  configuration.abort_invalid_free;
  fill_options.owner_bits = anything ? kSlowBit : 0;
}

}  // namespace heaptap
