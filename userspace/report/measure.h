// SPDX-License-Identifier: Apache-2.0
//
// The quantities that a view sums: bytes and objects, with the error that sampling causes.
//
// Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_REPORT_MEASURE_H_
#define HEAPTAP_USERSPACE_REPORT_MEASURE_H_

#include <cstdint>

#include "userspace/profile/estimate.h"

namespace heaptap::report {

// An estimate and its error. In a difference, bytes and objects may be negative.
struct Measure {
  double bytes = 0;
  double objects = 0;
  uint64_t samples = 0;
  double variance = 0;  // of bytes

  Measure& operator+=(const Measure& other);
  friend bool operator==(const Measure&, const Measure&) = default;

  // The standard error of bytes.
  double Error() const;
};

Measure ToMeasure(const profile::Estimate& estimate);

// The memory that was allocated and is no longer live. Its samples are not among the live ones, so the variances
// subtract. Rounded numbers never make the result negative. `before`: live in the earlier profile of a difference, else
// nothing.
Measure FreedOf(const Measure& allocated, const Measure& live, const Measure& before = {});

struct Measures {
  Measure live;
  Measure allocated;
  Measure freed = {};
  Measure before = {};  // in a difference: live in the earlier profile

  Measures& operator+=(const Measures& other);
  friend bool operator==(const Measures&, const Measures&) = default;
};

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_REPORT_MEASURE_H_
