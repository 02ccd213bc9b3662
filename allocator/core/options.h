// SPDX-License-Identifier: Apache-2.0
//
// What the core is told when the process starts.
//
// Filling finds uses of memory that was never written or is free already: junk and zero of MALLOC_CONF. The fast paths
// of malloc and free fill nothing and do not ask whether they should. While anything is filled, ready lists stay empty
// (Heap::Take) and the owner words of slabs carry kSlowBit, so that every call takes its slow path, which does ask.
// abort_invalid_free works the same way (invalid_free.h).
#ifndef HEAPTAP_ALLOCATOR_CORE_OPTIONS_H_
#define HEAPTAP_ALLOCATOR_CORE_OPTIONS_H_

#include <stddef.h>
#include <stdint.h>

namespace heaptap {

// What memory is filled with; jemalloc's values.
inline constexpr unsigned char kAllocationJunk = 0xa5;
inline constexpr unsigned char kFreeJunk = 0x5a;

enum class FillOnAllocation : uint8_t { kNothing, kZero, kJunk };

enum class Thp : uint8_t { kDefault, kAlways, kNever };  // transparent huge pages

struct CoreOptions {
  FillOnAllocation fill_on_allocation;
  bool fill_on_free;
  bool abort_invalid_free;  // a free of what is no live block ends the process
  bool xmalloc;             // an allocation that fails ends the process
  Thp thp;
  uintptr_t owner_bits;  // kSlowBit if every free takes its slow path, else 0: what owner words carry beside the heap
};

// Constant once SetCoreOptions was called. Zero-initialised state is valid: jemalloc's defaults.
extern CoreOptions core_options;

// `options.owner_bits` is not read; it follows from the others. REQUIRES: no heap is in use yet.
void SetCoreOptions(CoreOptions options);

// xmalloc. ------------------------------------------------------------------------------------------------------------

// jemalloc's words for its entry points.
inline constexpr char kErrorInMalloc[] = "Error in malloc()";
inline constexpr char kErrorInCalloc[] = "Error in calloc()";
inline constexpr char kErrorInRealloc[] = "Error in realloc()";
inline constexpr char kErrorInMallocx[] = "Error in mallocx()";
inline constexpr char kErrorInRallocx[] = "Error in rallocx()";
inline constexpr char kErrorInAligned[] = "Error allocating aligned memory";

// There is no memory: with xmalloc:true says so on stderr and aborts, else does nothing. Any thread, no lock held.
void AbortIfXmalloc(const char* error);

// The result of an entry point that has failed if it is nullptr.
inline void* CheckXmalloc(void* pointer, const char* error) {
  if (__builtin_expect(pointer == nullptr, 0)) AbortIfXmalloc(error);
  return pointer;
}

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_OPTIONS_H_
