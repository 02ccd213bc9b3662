// SPDX-License-Identifier: Apache-2.0
//
// experimental.hooks.*: functions of the program that are called for samples and dumps, on the thread concerned, with
// no lock held. nullptr: no hook. Hooks are not called for what a hook itself does. errno is kept.
#ifndef HEAPTAP_ALLOCATOR_PROFILING_HOOKS_H_
#define HEAPTAP_ALLOCATOR_PROFILING_HOOKS_H_

#include <errno.h>
#include <stddef.h>

#include <atomic>

#include "allocator/core/slab.h"

namespace heaptap {

using DumpHook = void (*)(const char* path);
// `backtrace` is empty: the process does not unwind stacks.
using SampleHook = void (*)(const void* pointer, size_t size, void** backtrace, unsigned frames, size_t usable);
using SampleFreeHook = void (*)(const void* pointer, size_t usable);

struct Hooks {
  std::atomic<DumpHook> dump;               // after each dump
  std::atomic<SampleHook> sample;           // after a sample was allocated
  std::atomic<SampleFreeHook> sample_free;  // before a sample is freed
};
extern Hooks hooks;

// Whether the thread is in a hook.
extern constinit thread_local bool in_hook;

// Out of line, so that callers without a hook save no registers for it.
template <typename Hook, typename... Arguments>
[[gnu::cold, gnu::noinline]] void CallFunction(Hook function, Arguments... arguments) {
  if (in_hook) return;
  in_hook = true;
  int saved = errno;
  function(arguments...);
  errno = saved;
  in_hook = false;
}

template <typename Hook, typename... Arguments>
void CallHook(const std::atomic<Hook>& hook, Arguments... arguments) {
  // Acquire: the hook sees what the program wrote before it set the hook.
  Hook function = hook.load(std::memory_order_acquire);
  if (HEAPTAP_UNLIKELY(function != nullptr)) CallFunction(function, arguments...);
}

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROFILING_HOOKS_H_
