// SPDX-License-Identifier: Apache-2.0
//
// Divides the resident memory of a process into parts: the part that a profile explains, and the parts of the rest.
#ifndef HEAPTAP_USERSPACE_PROFILE_COVERAGE_H_
#define HEAPTAP_USERSPACE_PROFILE_COVERAGE_H_

#include <cstdint>
#include <vector>

#include "heaptap/contract.h"

namespace heaptap::profile {

// Bytes, as the kernel counts them.
struct ResidentBytes {
  uint64_t anonymous = 0;  // with `stacks`
  uint64_t files = 0;
  uint64_t shared = 0;
  uint64_t stacks = 0;
};

inline constexpr char kLivePart[] = "live";

struct CoveragePart {
  const char* name = "";
  uint64_t bytes = 0;
  const char* note = "";  // what it means, a sentence
};

// The parts, in the order in which people read them; their sum is the resident memory. `statistics`: those of the
// allocator, which may be hostile; null: unknown, and the parts that follow from them are left out. `live`: the
// estimate of the profile. The allocator does not know which of its pages are resident, so a part gets no more than
// what is left: first what it has certainly written (metadata, cached), then live memory, then fragmentation.
// Thread-safe.
std::vector<CoveragePart> Cover(const ResidentBytes& resident, const heaptap_statistics* statistics, double live);

// The resident memory that the parts divide.
double SumOf(const std::vector<CoveragePart>& parts);

}  // namespace heaptap::profile

#endif  // HEAPTAP_USERSPACE_PROFILE_COVERAGE_H_
