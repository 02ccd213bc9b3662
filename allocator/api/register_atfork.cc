// SPDX-License-Identifier: Apache-2.0
//
// glibc's function behind pthread_atfork. Handlers run before a fork in the reverse order of their registration. The
// allocator's handlers take its locks. They must run last, and so be registered first, because other handlers may
// allocate, or wait for threads that do. The allocator starts before other libraries do (-z initfirst), except where
// glibc before 2.34 starts libpthread in its place. So it starts here at the latest.
#include <errno.h>
#include <pthread.h>

#include "allocator/api/symbols.h"
#include "allocator/platform/objects.h"
#include "allocator/process/lifecycle.h"

extern "C" {
// musl has this function instead. Only the allocator calls the function below there.
extern decltype(pthread_atfork) pthread_atfork __attribute__((weak));
}

HEAPTAP_C_EXPORT int __register_atfork(void (*prepare)(), void (*parent)(), void (*child)(), void* object) {
  heaptap::lifecycle::EnsureStarted();
  const auto next = reinterpret_cast<decltype(&__register_atfork)>(heaptap::FindNext("__register_atfork"));
  if (next != nullptr) return next(prepare, parent, child, object);
  return &pthread_atfork != nullptr ? pthread_atfork(prepare, parent, child) : ENOSYS;
}
