// SPDX-License-Identifier: Apache-2.0
//
// Reads jemalloc's options and the collector's options, in jemalloc's grammar:
//
//   pairs       key:value, separated by commas
//   keys        letters, digits and underscores
//   values      by the type of the option (options.h)
//
// An unknown or invalid pair is reported and skipped. A syntax error is reported and ends the string. option_sources.h
// has the sources of the strings.
//
// For one thread; allocates nothing.
#ifndef HEAPTAP_ALLOCATOR_PROCESS_READ_OPTIONS_H_
#define HEAPTAP_ALLOCATOR_PROCESS_READ_OPTIONS_H_

#include "allocator/process/configuration.h"

namespace heaptap {

// The sources of jemalloc's options, in the order in which they are read. A later source overrides an earlier one,
// option by option.
enum OptionSource {
  kBuiltIn,              // always empty
  kProgram,              // malloc_conf
  kSymbolicLink,         // /etc/malloc.conf
  kEnvironmentVariable,  // MALLOC_CONF
  kProgramHarder,        // malloc_conf_2_conf_harder
  kOptionSources,
};

struct OptionTexts {
  const char* text[kOptionSources] = {};  // nullptr: the source does not exist
};

// Reads all texts, then sets the options that others imply. With abort_conf, an error is reported and aborts.
void ReadMallocConf(const OptionTexts& texts, Configuration* configuration);
// Like ReadMallocConf, where another allocator of the process reads these texts too, and acts on them: takes only the
// options about samples, lg_prof_sample and prof_bt_max, and reports nothing.
void ReadSharedMallocConf(const OptionTexts& texts, Configuration* configuration);
// Reads HEAPTAP_CONF.
void ReadHeaptapConf(const char* text, Configuration* configuration);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROCESS_READ_OPTIONS_H_
