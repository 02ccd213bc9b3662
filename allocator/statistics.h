// SPDX-License-Identifier: Apache-2.0
//
// The allocator's own figures, which live in the control block (contract.h). Written on slow paths only, by any thread.
#ifndef HEAPTAP_ALLOCATOR_STATISTICS_H_
#define HEAPTAP_ALLOCATOR_STATISTICS_H_

#include <stdint.h>

#include "heaptap/contract.h"

// Exported: the collector finds it by its name, or from the probe heaptap:start.
extern "C" __attribute__((visibility("default"))) heaptap_control heaptap_control;

namespace heaptap {

using Figure = uint64_t heaptap_statistics::*;

inline void AddToFigure(Figure figure, int64_t amount) {
  __atomic_fetch_add(&(::heaptap_control.statistics.*figure), static_cast<uint64_t>(amount), __ATOMIC_RELAXED);
}

inline uint64_t ReadFigure(Figure figure) {
  return __atomic_load_n(&(::heaptap_control.statistics.*figure), __ATOMIC_RELAXED);
}

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_STATISTICS_H_
