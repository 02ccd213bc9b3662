// SPDX-License-Identifier: Apache-2.0
//
// Where options come from: the program, /etc/malloc.conf and the environment. A program that runs with more rights than
// its user has (AT_SECURE) is not steered by its environment.
#ifndef HEAPTAP_ALLOCATOR_PROCESS_OPTION_SOURCES_H_
#define HEAPTAP_ALLOCATOR_PROCESS_OPTION_SOURCES_H_

#include "allocator/process/read_options.h"

extern "C" {
// What a program may define to set its options.
extern __attribute__((weak, visibility("default"))) const char* malloc_conf;
extern __attribute__((weak, visibility("default"))) const char* malloc_conf_2_conf_harder;
}

namespace heaptap {

// Looks at all sources. The texts stay where they are for the life of the process. Once, by one thread, before
// OptionText.
OptionTexts ReadOptionSources();

// What ReadOptionSources has found; nullptr if the source was not there. Any thread.
const char* OptionText(OptionSource source);

// The value of a variable in an environment; nullptr if it is not set there, or if there is no environment. Any thread.
const char* FindVariable(char** environment, const char* name);

// A variable of the environment as it was at the start; nullptr if it is not set or must not be believed. Any thread,
// before libc is ready too.
const char* EnvironmentVariable(const char* name);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROCESS_OPTION_SOURCES_H_
