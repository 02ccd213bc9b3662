// SPDX-License-Identifier: Apache-2.0
#include "allocator/guest/host.h"

#include <dlfcn.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/guest/early_blocks.h"
#include "allocator/guest/thread.h"
#include "allocator/platform/system.h"

namespace heaptap {
namespace {

// What libc gets while the host is being found.
namespace early {

void* malloc(size_t size) { return TakeEarlyBlock(size); }

// An early block never comes here, and no other is freed so early.
void free(void*) {}

void* calloc(size_t count, size_t size) {
  size_t bytes;
  return __builtin_mul_overflow(count, size, &bytes) ? nullptr : TakeEarlyBlock(bytes);
}

void* realloc(void* pointer, size_t size) { return ResizeEarlyBlock(pointer, size); }

}  // namespace early

// Stands for a function that the host lacks. The guest hides such a name (names.h), so no program calls it.
[[noreturn]] void AbortMissing(const char* name) {
  Message message;
  message << "<heaptap>: libheaptap-guest.so: the program calls " << name << ", which its allocator does not have\n";
  message.Print();
  abort();
}

template <typename... Arguments>
void Ignore(const Arguments&...) {}

// What other callers than libc get while the host is being found: a failure.
#define HEAPTAP_EARLY(result, entry, name, parameters, arguments) \
  namespace early {                                               \
  result entry parameters {                                       \
    Ignore arguments;                                             \
    return static_cast<result>(0);                                \
  }                                                               \
  }
HEAPTAP_HOST_C_FUNCTIONS(HEAPTAP_EARLY)
HEAPTAP_HOST_EXTENDED_FUNCTIONS(HEAPTAP_EARLY)
HEAPTAP_HOST_NEW_FUNCTIONS(HEAPTAP_EARLY)
#undef HEAPTAP_EARLY

// Before the host is found; and after that, if it lacks the function.
#define HEAPTAP_FIRST_AND_MISSING(result, entry, name, parameters, arguments)          \
  namespace missing {                                                                  \
  result entry parameters {                                                            \
    Ignore arguments;                                                                  \
    AbortMissing(name);                                                                \
  }                                                                                    \
  }                                                                                    \
  namespace first {                                                                    \
  result entry parameters {                                                            \
    FindHost();                                                                        \
    return host.entry == first::entry ? early::entry arguments : host.entry arguments; \
  }                                                                                    \
  }
HEAPTAP_HOST_FUNCTIONS(HEAPTAP_FIRST_AND_MISSING)
#undef HEAPTAP_FIRST_AND_MISSING

bool IsSameLibrary(const void* one, const void* other) {
  Dl_info info, other_info;
  return dladdr(one, &info) != 0 && dladdr(other, &other_info) != 0 && info.dli_fbase == other_info.dli_fbase;
}

// The next definition, or `missing`.
template <typename Function>
Function Find(const char* name, Function missing) {
  void* next = dlsym(RTLD_NEXT, name);
  return next != nullptr ? reinterpret_cast<Function>(next) : missing;
}

Host FindFunctions() {
  Host found;
#define HEAPTAP_FIND(result, entry, name, parameters, arguments) found.entry = Find(name, missing::entry);
  HEAPTAP_HOST_FUNCTIONS(HEAPTAP_FIND)
#undef HEAPTAP_FIND
  if (found.libc_free == missing::libc_free) found.libc_free = found.free;
  if (found.libc_realloc == missing::libc_realloc) found.libc_realloc = found.realloc;
  return found;
}

HostFacts FindFacts(const Host& found) {
  HostFacts facts{};
  facts.malloc = reinterpret_cast<const void*>(found.malloc);
  facts.has_usable_size = IsSameLibrary(facts.malloc, reinterpret_cast<const void*>(found.malloc_usable_size));
  facts.is_glibc = IsSameLibrary(facts.malloc, reinterpret_cast<const void*>(&gnu_get_libc_version));
  void* nallocx = dlsym(RTLD_NEXT, "nallocx");
  if (nallocx != nullptr && IsSameLibrary(facts.malloc, nallocx)) {
    facts.nallocx = reinterpret_cast<decltype(facts.nallocx)>(nallocx);
  }
  return facts;
}

}  // namespace

#define HEAPTAP_INITIAL(result, entry, name, parameters, arguments) .entry = first::entry,
constinit Host host{HEAPTAP_HOST_FUNCTIONS(HEAPTAP_INITIAL)};
#undef HEAPTAP_INITIAL
constinit HostFacts host_facts{};

void FindHost() {
  // Any thread may be the first, and several find the same. There is no lock: the dynamic linker has its own, and a
  // thread that holds that one may come here.
  if (host.malloc != first::malloc || guest_thread.finds_host) return;
  guest_thread.finds_host = true;
  const int saved = errno;
  const Host found = FindFunctions();
  host_facts = FindFacts(found);
  host = found;
  // What was not found has left an error, which is not the program's.
  dlerror();
  errno = saved;
  guest_thread.finds_host = false;
}

void* FindNext(const char* name) {
  const int saved = errno;
  void* next = dlsym(RTLD_NEXT, name);
  if (next == nullptr) dlerror();
  errno = saved;
  return next;
}

bool HasHostFunction(const char* name) {
#define HEAPTAP_HAS(result, entry, text, parameters, arguments) \
  if (strcmp(name, text) == 0) return host.entry != missing::entry;
  HEAPTAP_HOST_FUNCTIONS(HEAPTAP_HAS)
#undef HEAPTAP_HAS
  return false;
}

}  // namespace heaptap
