// SPDX-License-Identifier: Apache-2.0
#include "allocator/platform/libc.h"

#include <errno.h>
#include <unistd.h>

#include "allocator/platform/assert.h"
#include "allocator/platform/mutex.h"
#include "allocator/platform/objects.h"
#include "allocator/platform/system.h"

extern "C" {

// Before glibc 2.34 these are only in libpthread.
extern decltype(pthread_key_create) pthread_key_create __attribute__((weak));
extern decltype(pthread_setspecific) pthread_setspecific __attribute__((weak));
extern decltype(pthread_create) pthread_create __attribute__((weak));
extern decltype(pthread_join) pthread_join __attribute__((weak));

// glibc has this from 2.32 on.
extern char __libc_single_threaded __attribute__((weak));

// glibc has the first, and the second only for programs that are linked with it; musl has the second.
int __register_atfork(void (*prepare)(), void (*parent)(), void (*child)(), void* object) __attribute__((weak));
extern decltype(pthread_atfork) pthread_atfork __attribute__((weak));

// Every libc defines this function, but no header declares it.
int __cxa_atexit(void (*handler)(void*), void* argument, void* object);

// glibc: the address of argc on the initial stack, as the dynamic linker keeps it.
extern void* __libc_stack_end __attribute__((weak));

// Identifies this library or program to libc, which drops what a library has registered when the library is unloaded.
extern void* __dso_handle __attribute__((visibility("hidden")));
}

namespace heaptap::libc {
namespace {

template <typename Function>
Function FindLate(Function known, const char* name) {
  return known != nullptr ? known : reinterpret_cast<Function>(FindFirst(name));
}

}  // namespace

ThreadFunctions FindThreadFunctions() {
  HEAPTAP_ASSERT(!Mutex::HoldsAny());
  ThreadFunctions found;
  found.create = FindLate(&pthread_create, "pthread_create");
  // One library defines them all.
  if (found.create == nullptr) return {};
  found.key_create = FindLate(&pthread_key_create, "pthread_key_create");
  found.setspecific = FindLate(&pthread_setspecific, "pthread_setspecific");
  found.join = FindLate(&pthread_join, "pthread_join");
  return found;
}

bool IsSingleThreaded() {
  if (&__libc_single_threaded != nullptr) return __libc_single_threaded != 0;
  return ThreadCount() == 1;
}

bool AtFork(void (*prepare)(), void (*parent)(), void (*child)()) {
  const int saved = errno;
  const int error = &__register_atfork != nullptr ? __register_atfork(prepare, parent, child, &__dso_handle)
                                                  : pthread_atfork(prepare, parent, child);
  errno = saved;
  return error == 0;
}

bool AtExit(void (*handler)()) {
  const int saved = errno;
  const int error = __cxa_atexit([](void* function) { reinterpret_cast<void (*)()>(function)(); },
                                 reinterpret_cast<void*>(handler), &__dso_handle);
  errno = saved;
  return error == 0;
}

char** Environment() {
  // The dynamic linker of glibc allocates before libc sets `environ`.
  if (environ != nullptr || &__libc_stack_end == nullptr || __libc_stack_end == nullptr) return environ;
  const long arguments = *static_cast<long*>(__libc_stack_end);
  return static_cast<char**>(__libc_stack_end) + 1 + arguments + 1;
}

}  // namespace heaptap::libc
