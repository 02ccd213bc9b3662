// SPDX-License-Identifier: Apache-2.0
//
// xmalloc:true of MALLOC_CONF: a program that does not look at the results of its allocations ends where one fails.
#ifndef HEAPTAP_ALLOCATOR_XMALLOC_H_
#define HEAPTAP_ALLOCATOR_XMALLOC_H_

namespace heaptap {

// jemalloc's words for its entry points.
inline constexpr char kErrorInMalloc[] = "Error in malloc()";
inline constexpr char kErrorInCalloc[] = "Error in calloc()";
inline constexpr char kErrorInRealloc[] = "Error in realloc()";
inline constexpr char kErrorInMallocx[] = "Error in mallocx()";
inline constexpr char kErrorInRallocx[] = "Error in rallocx()";
inline constexpr char kErrorInAligned[] = "Error allocating aligned memory";

// There is no memory: with xmalloc:true says so on stderr and aborts, else does nothing. Any thread, no lock held.
void OnOutOfMemory(const char* error);

// The result of an entry point that has failed if it is nullptr.
inline void* OrAbort(void* pointer, const char* error) {
  if (__builtin_expect(pointer == nullptr, 0)) OnOutOfMemory(error);
  return pointer;
}

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_XMALLOC_H_
