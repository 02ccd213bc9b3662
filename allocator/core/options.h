// SPDX-License-Identifier: Apache-2.0
//
// The options of the core, which the process sets when it starts.
//
// Filling (junk and zero of MALLOC_CONF) reveals uses of memory that was never written or is already free. The fast
// paths of malloc and free contain nothing about it. While an option fills blocks, ready lists stay empty (Heap::Take)
// and the owner words of slabs carry kSlowBit, so that every call takes its slow path, which fills.
// abort_invalid_free works the same way (invalid_free.h).
#ifndef HEAPTAP_ALLOCATOR_CORE_OPTIONS_H_
#define HEAPTAP_ALLOCATOR_CORE_OPTIONS_H_

#include <stddef.h>
#include <stdint.h>

namespace heaptap {

// A debug build asserts, and checks its own equations (check.h).
#ifdef HEAPTAP_DEBUG
inline constexpr bool kDebugBuild = true;
#else
inline constexpr bool kDebugBuild = false;
#endif

// The bytes that memory is filled with; jemalloc's values.
inline constexpr unsigned char kAllocationJunk = 0xa5;
inline constexpr unsigned char kFreeJunk = 0x5a;

enum class FillOnAllocation : uint8_t { kNothing, kZero, kJunk };

enum class Thp : uint8_t { kDefault, kAlways, kNever };  // transparent huge pages

struct CoreOptions {
  FillOnAllocation fill_on_allocation;
  bool fill_on_free;
  bool abort_invalid_free;  // an invalid free ends the process
  bool xmalloc;             // a failed allocation ends the process
  Thp thp;
  bool debug_check;      // debug builds: each slow path ends with a check (check.h)
  uintptr_t owner_bits;  // in the owner words of slabs: kSlowBit if every free takes its slow path, else 0
};

// Constant after SetCoreOptions. Zero-initialised state is valid: jemalloc's defaults.
extern CoreOptions core_options;

// Ignores `options.owner_bits`, which follows from the other fields. REQUIRES: no heap is in use yet, or
// its owner words do not change.
void SetCoreOptions(CoreOptions options);

// xmalloc. ------------------------------------------------------------------------------------------------------------

// jemalloc's texts for its entry points.
inline constexpr char kErrorInMalloc[] = "Error in malloc()";
inline constexpr char kErrorInCalloc[] = "Error in calloc()";
inline constexpr char kErrorInRealloc[] = "Error in realloc()";
inline constexpr char kErrorInMallocx[] = "Error in mallocx()";
inline constexpr char kErrorInRallocx[] = "Error in rallocx()";
inline constexpr char kErrorInAligned[] = "Error allocating aligned memory";

// For a failed allocation. With xmalloc:true: prints `error` and aborts, else does nothing. Any thread, no lock held.
void AbortIfXmalloc(const char* error);

// Passes the result of an entry point through. nullptr is a failure, which ends the process with xmalloc:true.
inline void* CheckXmalloc(void* pointer, const char* error) {
  if (__builtin_expect(pointer == nullptr, 0)) AbortIfXmalloc(error);
  return pointer;
}

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_OPTIONS_H_
