// SPDX-License-Identifier: Apache-2.0
//
// Reads options, those of jemalloc and those of the collector, in jemalloc's grammar:
//
//   pairs       key:value, separated by commas
//   keys        letters, digits and underscores
//   values      what the option's type reads (options.h)
//
// A pair that is not understood is reported and skipped; a string that is no list of pairs is reported and read no
// further. Where the strings come from is in option_sources.h.
//
// For one thread; allocates nothing.
#ifndef HEAPTAP_ALLOCATOR_PROCESS_READ_OPTIONS_H_
#define HEAPTAP_ALLOCATOR_PROCESS_READ_OPTIONS_H_

#include "allocator/process/configuration.h"

namespace heaptap {

// Where jemalloc's options come from, in the order in which they are read: later ones win, option by option.
enum OptionSource {
  kBuiltIn,              // there are none
  kProgram,              // malloc_conf
  kSymbolicLink,         // /etc/malloc.conf
  kEnvironmentVariable,  // MALLOC_CONF
  kProgramHarder,        // malloc_conf_2_conf_harder
  kOptionSources,
};

struct OptionTexts {
  const char* text[kOptionSources] = {};  // nullptr: the source is not there
};

// Reads all of them, then draws the conclusions: which options imply others. With abort_conf and an error it says so
// and does not return.
void ReadMallocConf(const OptionTexts& texts, Configuration* configuration);
// HEAPTAP_CONF.
void ReadHeaptapConf(const char* text, Configuration* configuration);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROCESS_READ_OPTIONS_H_
