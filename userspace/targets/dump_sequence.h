// SPDX-License-Identifier: Apache-2.0
//
// The numbers in the names of one process's dumps.
#ifndef HEAPTAP_USERSPACE_TARGETS_DUMP_SEQUENCE_H_
#define HEAPTAP_USERSPACE_TARGETS_DUMP_SEQUENCE_H_

#include <cstdint>

namespace heaptap::recording {

struct DumpSequence {
  uint64_t all = 0;
  uint64_t interval = 0;
  uint64_t manual = 0;
  uint64_t high_water = 0;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_TARGETS_DUMP_SEQUENCE_H_
