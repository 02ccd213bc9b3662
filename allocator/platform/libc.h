// SPDX-License-Identifier: Apache-2.0
//
// What the allocator needs from libc and not every libc has. This is the only place that knows how they differ.
//
// The shared libraries are one file for glibc from 2.17 on and for musl 1.2. So they are linked without libc: they have
// no NEEDED entry and ask for no version of a symbol, and the dynamic linker takes each name from the libc of the
// program, in that libc's first version of the name, or in the default version. tests/imports.txt lists the names:
//
// - names that every libc has are called directly, in all files;
// - names that some libcs lack are weak here, and null there. The functions below find them later, or do without them.
//
// In the archives, the same references must bring the functions into a static program, which weak references do not do.
// There libc_archive.S makes the references strong.
//
// Any thread, also before constructors run. Nothing here touches errno.
#ifndef HEAPTAP_ALLOCATOR_PLATFORM_LIBC_H_
#define HEAPTAP_ALLOCATOR_PLATFORM_LIBC_H_

#include <pthread.h>

namespace heaptap::libc {

// Threads. Before glibc 2.34 these functions are in libpthread, which a plugin may bring late: until it comes there is
// one thread, and no function.
struct ThreadFunctions {
  decltype(&pthread_key_create) key_create = nullptr;
  decltype(&pthread_setspecific) setspecific = nullptr;
  decltype(&pthread_create) create = nullptr;
  decltype(&pthread_join) join = nullptr;

  // All of them or none.
  explicit operator bool() const { return create != nullptr; }
};
// REQUIRES: the caller holds no lock of the allocator, because this may wait for the dynamic linker.
ThreadFunctions FindThreadFunctions();

// Whether the process has one thread. False if that is not known.
bool IsSingleThreaded();

// Like pthread_atfork and atexit. False: out of memory.
bool AtFork(void (*prepare)(), void (*parent)(), void (*child)());
bool AtExit(void (*handler)());

// The environment, also before libc has set `environ`. nullptr: not known yet.
char** Environment();

}  // namespace heaptap::libc

#endif  // HEAPTAP_ALLOCATOR_PLATFORM_LIBC_H_
