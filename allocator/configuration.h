// SPDX-License-Identifier: Apache-2.0
//
// What MALLOC_CONF and HEAPTAP_CONF ask for, in jemalloc's grammar:
//
//   pairs       key:value, separated by commas
//   keys        letters, digits and underscores
//   booleans    true or false, nothing else
//   numbers     decimal, 0x hexadecimal or 0 octal
//
// A pair that is not understood is reported on stderr and skipped; a string that is no list of pairs is reported and
// read no further. Options of jemalloc that mean nothing here are accepted in silence.
//
// For one thread; allocates nothing.
#ifndef HEAPTAP_ALLOCATOR_CONFIGURATION_H_
#define HEAPTAP_ALLOCATOR_CONFIGURATION_H_

#include <limits.h>
#include <stdint.h>

#include "heaptap/contract.h"

namespace heaptap {

struct Configuration {
  bool prof = false;        // control and dumps from inside the process
  bool prof_active = true;  // what prof.active begins with
  bool prof_leak = false;   // a leak summary at exit; implies prof and prof_final
  bool prof_final = false;  // a dump at exit
  uint32_t lg_sample = HEAPTAP_DEFAULT_LG_SAMPLE;
  uint32_t collector_lg_sample = HEAPTAP_NO_RATE;
  uint32_t collector_pid = 0;
  bool has_seed = false;
  uint64_t seed = 0;
  char prefix[PATH_MAX] = "jeprof";  // of the names of automatic dumps; empty: no such dumps
};

// Each reads one string and changes what it names.
void ReadMallocConf(const char* text, Configuration* configuration);
void ReadHeaptapConf(const char* text, Configuration* configuration);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CONFIGURATION_H_
