// SPDX-License-Identifier: Apache-2.0
//
// Sampling by a countdown of charges, for blocks of an allocator that asks once for each allocation (guest/decision.h,
// heaptap/sample.h). Pure; any thread, any time.
#ifndef HEAPTAP_ALLOCATOR_PLATFORM_CHARGE_H_
#define HEAPTAP_ALLOCATOR_PLATFORM_CHARGE_H_

#include <stddef.h>
#include <stdint.h>

namespace heaptap {

// What an allocation of `size` bytes takes from the countdown: hardly ever less than the usable size. A size that is
// too large to exist may have any charge.
constexpr uint64_t ChargeOf(size_t size) { return 2 * size + 24; }

// The countdown T to a marked byte at this distance: the allocation that makes the charges exceed T contains the byte,
// so T is one less than the distance, rounded up.
constexpr uint64_t CountdownTo(double distance) {
  const uint64_t whole = static_cast<uint64_t>(distance);
  return static_cast<double>(whole) < distance || whole == 0 ? whole : whole - 1;
}

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PLATFORM_CHARGE_H_
