// SPDX-License-Identifier: Apache-2.0
//
// Asks the collector for areas (contract.h, AREAS; sampling/areas.h).
//
// Any thread, with no lock held and in no HeapScope. Keeps errno.
#ifndef HEAPTAP_ALLOCATOR_PROFILING_AREA_REQUEST_H_
#define HEAPTAP_ALLOCATOR_PROFILING_AREA_REQUEST_H_

#include "allocator/core/control.h"

namespace heaptap {

namespace area_request_internal {
void Ask();
}

// To be called after each sample that was reported. Asks for an area and waits for it, if one is of use, every
// allocation is a sample, the collector gives areas, and the process has reported so many samples that an area is worth
// its price. The wait takes a millisecond, or a tenth of a second if the collector does not answer; after that the
// process does not ask again for a second, then two, and so on up to a minute.
inline void AskForAreaIfWorthIt() {
  if (__builtin_expect(control::DoesCollectorGiveAreas(), false)) area_request_internal::Ask();
}

// In the child of a fork.
void ResetAreaRequestAfterFork();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROFILING_AREA_REQUEST_H_
