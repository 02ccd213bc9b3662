// SPDX-License-Identifier: Apache-2.0
//
// The sources of options: the program, /etc/malloc.conf and the environment. A program that runs with more rights than
// its user (AT_SECURE) ignores the environment.
#ifndef HEAPTAP_ALLOCATOR_PROCESS_OPTION_SOURCES_H_
#define HEAPTAP_ALLOCATOR_PROCESS_OPTION_SOURCES_H_

#include "allocator/process/read_options.h"

extern "C" {
// A program may define these variables to set its options.
extern __attribute__((weak, visibility("default"))) const char* malloc_conf;
extern __attribute__((weak, visibility("default"))) const char* malloc_conf_2_conf_harder;
}

namespace heaptap {

// Reads all sources. The texts stay valid for the life of the process. Called once, by one thread, before OptionText.
OptionTexts ReadOptionSources();

// The text that ReadOptionSources found. nullptr: the source does not exist. Any thread.
const char* OptionText(OptionSource source);

// The value of a variable in `environment`, which may be nullptr. nullptr: it is not set. Any thread.
const char* FindVariable(char** environment, const char* name);

// Whether the program has more rights than the user who started it, as a set-user-ID program has (AT_SECURE).
bool HasMoreRightsThanItsUser();

// The value of a variable in the environment of the process. nullptr: it is not set, or must be ignored, since the
// program has more rights than its user. Any thread, even before libc is ready.
const char* EnvironmentVariable(const char* name);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROCESS_OPTION_SOURCES_H_
