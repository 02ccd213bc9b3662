// SPDX-License-Identifier: Apache-2.0
#include "allocator/guest/host.h"

#include <stdlib.h>
#include <string.h>

#include "allocator/guest/early_blocks.h"
#include "allocator/guest/thread.h"
#include "allocator/platform/assert.h"
#include "allocator/platform/objects.h"
#include "allocator/platform/system.h"

namespace heaptap {
namespace {

// The functions that libc gets while the host is being found.
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

// The other functions, which libc does not need, fail while the host is being found.
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

// Two stand-ins for each function: `first` until the host is found, and `missing` if the host lacks the function.
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

// The next definition, or `missing`.
template <typename Function>
Function Find(const char* name, Function missing) {
  void* next = FindNext(name);
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

// The next definition of a name. nullptr: there is none in the library that has `malloc`.
void* FindInHost(const void* malloc, const char* name) {
  void* next = FindNext(name);
  return next != nullptr && IsSameObject(malloc, next) ? next : nullptr;
}

bool IsSizeExact(const Host& found) {
  void* block = found.malloc(1);
  const bool is_exact = block != nullptr && found.malloc_usable_size(block) == 1;
  found.free(block);
  return is_exact;
}

HostFacts FindFacts(const Host& found) {
  HostFacts facts{};
  facts.malloc = reinterpret_cast<const void*>(found.malloc);
  facts.has_usable_size = IsSameObject(facts.malloc, reinterpret_cast<const void*>(found.malloc_usable_size));
  facts.is_glibc = FindInHost(facts.malloc, "gnu_get_libc_version") != nullptr;
  // musl, the other libc, has no function by which to recognise it.
  facts.is_musl = !facts.is_glibc && FindInHost(facts.malloc, "__libc_start_main") != nullptr;
  facts.has_exact_size = facts.is_musl && IsSizeExact(found);
  facts.nallocx = reinterpret_cast<decltype(facts.nallocx)>(FindInHost(facts.malloc, "nallocx"));
  return facts;
}

}  // namespace

#define HEAPTAP_INITIAL(result, entry, name, parameters, arguments) .entry = first::entry,
constinit Host host{HEAPTAP_HOST_FUNCTIONS(HEAPTAP_INITIAL)};
#undef HEAPTAP_INITIAL
constinit HostFacts host_facts{};

void FindHost() {
  // Any thread may be the first, and several threads find the same functions. No lock is taken: the dynamic linker has
  // its own lock, and a thread that holds that lock may come here.
  if (host.malloc != first::malloc || guest_thread.finds_host) return;
  guest_thread.finds_host = true;
  const Host found = FindFunctions();
  host_facts = FindFacts(found);
  host = found;
  guest_thread.finds_host = false;
}

void* FindInHost(const char* name) { return FindInHost(host_facts.malloc, name); }

bool HasHostFunction(const char* name) {
  HEAPTAP_ASSERT(host.malloc != first::malloc);
#define HEAPTAP_HAS(result, entry, text, parameters, arguments) \
  if (strcmp(name, text) == 0) return host.entry != missing::entry;
  HEAPTAP_HOST_FUNCTIONS(HEAPTAP_HAS)
#undef HEAPTAP_HAS
  return false;
}

}  // namespace heaptap
