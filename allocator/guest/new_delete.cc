// SPDX-License-Identifier: Apache-2.0
//
// Operators new. The next operator may be an allocator's own, which serves the block itself. Or it belongs to a C++
// library: then it calls malloc, and so comes back to the guest. In both cases the allocation must be charged once, and
// a sample must be taken here, where its stack begins with the program's code.
//
// So these operators only look at the countdown. If it would not end, they jump on: to the C++ library, whose malloc is
// charged; or, for an allocator's own operator, to a function that charges the allocation before it jumps on
// (new_functions.cc, `charging`). FindNewFunctions tries out which of the two the next operator is.
//
// Compiled like fast.cc.
#include <stddef.h>

#include <new>

#include "allocator/api/symbols.h"
#include "allocator/guest/host.h"
#include "allocator/guest/new_functions.h"
#include "allocator/guest/samples.h"
#include "allocator/guest/thread.h"

namespace heaptap {
namespace {

// Whether the countdown ends with an allocation of PassedSize, or nearly so. If it ends although this is false, the
// sample is taken later, when the C++ library calls malloc.
[[gnu::always_inline]] inline bool MayEnd(size_t size) { return WouldEnd(size + 1); }
[[gnu::always_inline]] inline bool MayEnd(size_t size, std::align_val_t alignment) {
  return WouldEnd(size + 2 * static_cast<size_t>(alignment));
}

// Called when the countdown may end: decides whether the allocation is a sample. `size`: a PassedSize.
void* TakeNewSample(size_t size, size_t alignment) {
  const size_t charged = ChargedSize(size, alignment);
  void* sample = Charge(charged) ? TakeSample(size, {.alignment = alignment}) : nullptr;
  // The next operator charges the allocation again.
  if (sample == nullptr) TakeBackCharge(charged);
  return sample;
}

}  // namespace

// The slow paths have frames, unlike the operators.
namespace slow {

[[gnu::noinline]] void* New(size_t size) {
  if (void* sample = TakeNewSample(PassedSize(size), 1)) return sample;
  return ServedByHost(host.new_plain(size));
}

[[gnu::noinline]] void* NewArray(size_t size) {
  if (void* sample = TakeNewSample(PassedSize(size), 1)) return sample;
  return ServedByHost(host.new_array(size));
}

[[gnu::noinline]] void* New(size_t size, const std::nothrow_t& nothrow) {
  if (void* sample = TakeNewSample(PassedSize(size), 1)) return sample;
  return ServedByHost(host.new_nothrow(size, nothrow));
}

[[gnu::noinline]] void* NewArray(size_t size, const std::nothrow_t& nothrow) {
  if (void* sample = TakeNewSample(PassedSize(size), 1)) return sample;
  return ServedByHost(host.new_array_nothrow(size, nothrow));
}

[[gnu::noinline]] void* New(size_t size, std::align_val_t alignment) {
  if (void* sample = TakeNewSample(PassedSize(size, alignment), static_cast<size_t>(alignment))) return sample;
  return ServedByHost(host.new_aligned(size, alignment));
}

[[gnu::noinline]] void* NewArray(size_t size, std::align_val_t alignment) {
  if (void* sample = TakeNewSample(PassedSize(size, alignment), static_cast<size_t>(alignment))) return sample;
  return ServedByHost(host.new_array_aligned(size, alignment));
}

[[gnu::noinline]] void* New(size_t size, std::align_val_t alignment, const std::nothrow_t& nothrow) {
  if (void* sample = TakeNewSample(PassedSize(size, alignment), static_cast<size_t>(alignment))) return sample;
  return ServedByHost(host.new_aligned_nothrow(size, alignment, nothrow));
}

[[gnu::noinline]] void* NewArray(size_t size, std::align_val_t alignment, const std::nothrow_t& nothrow) {
  if (void* sample = TakeNewSample(PassedSize(size, alignment), static_cast<size_t>(alignment))) return sample;
  return ServedByHost(host.new_array_aligned_nothrow(size, alignment, nothrow));
}

}  // namespace slow
}  // namespace heaptap

using heaptap::host;
using heaptap::MayEnd;

HEAPTAP_EXPORT void* operator new(size_t size) {
  if (MayEnd(size)) return heaptap::slow::New(size);
  return host.new_plain(size);
}
HEAPTAP_EXPORT void* operator new[](size_t size) {
  if (MayEnd(size)) return heaptap::slow::NewArray(size);
  return host.new_array(size);
}
HEAPTAP_EXPORT void* operator new(size_t size, const std::nothrow_t& nothrow) noexcept {
  if (MayEnd(size)) return heaptap::slow::New(size, nothrow);
  return host.new_nothrow(size, nothrow);
}
HEAPTAP_EXPORT void* operator new[](size_t size, const std::nothrow_t& nothrow) noexcept {
  if (MayEnd(size)) return heaptap::slow::NewArray(size, nothrow);
  return host.new_array_nothrow(size, nothrow);
}
HEAPTAP_EXPORT void* operator new(size_t size, std::align_val_t alignment) {
  if (MayEnd(size, alignment)) return heaptap::slow::New(size, alignment);
  return host.new_aligned(size, alignment);
}
HEAPTAP_EXPORT void* operator new[](size_t size, std::align_val_t alignment) {
  if (MayEnd(size, alignment)) return heaptap::slow::NewArray(size, alignment);
  return host.new_array_aligned(size, alignment);
}
HEAPTAP_EXPORT void* operator new(size_t size, std::align_val_t alignment, const std::nothrow_t& nothrow) noexcept {
  if (MayEnd(size, alignment)) return heaptap::slow::New(size, alignment, nothrow);
  return host.new_aligned_nothrow(size, alignment, nothrow);
}
HEAPTAP_EXPORT void* operator new[](size_t size, std::align_val_t alignment, const std::nothrow_t& nothrow) noexcept {
  if (MayEnd(size, alignment)) return heaptap::slow::NewArray(size, alignment, nothrow);
  return host.new_array_aligned_nothrow(size, alignment, nothrow);
}
