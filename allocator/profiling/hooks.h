// SPDX-License-Identifier: Apache-2.0
//
// experimental.hooks.*: functions of the program that are called for samples and dumps, by the thread concerned, with
// no lock held; nullptr: none. Whatever a hook itself does calls no hook. errno is kept.
#ifndef HEAPTAP_ALLOCATOR_PROFILING_HOOKS_H_
#define HEAPTAP_ALLOCATOR_PROFILING_HOOKS_H_

#include <errno.h>
#include <stddef.h>

#include "allocator/core/slab.h"

namespace heaptap {

using DumpHook = void (*)(const char* path);
// `backtrace` is empty: nothing unwinds in the process.
using SampleHook = void (*)(const void* pointer, size_t size, void** backtrace, unsigned frames, size_t usable);
using SampleFreeHook = void (*)(const void* pointer, size_t usable);

struct Hooks {
  DumpHook dump;               // after each dump
  SampleHook sample;           // after a sample was allocated
  SampleFreeHook sample_free;  // before a sample is freed
};
extern Hooks hooks;  // each pointer is read and written atomically

extern constinit thread_local bool in_hook;

template <typename Hook, typename... Arguments>
void CallHook(const Hook& hook, Arguments... arguments) {
  Hook function = __atomic_load_n(&hook, __ATOMIC_ACQUIRE);
  if (HEAPTAP_LIKELY(function == nullptr) || in_hook) return;
  in_hook = true;
  int saved = errno;
  function(arguments...);
  errno = saved;
  in_hook = false;
}

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROFILING_HOOKS_H_
