// SPDX-License-Identifier: Apache-2.0
//
// Compiled like fast.cc: the stack of an allocation in a nested call begins with the host's code.
#include "allocator/guest/nested_calls.h"

#include <stddef.h>
#include <stdint.h>

#include "allocator/core/size_class.h"
#include "allocator/guest/host.h"
#include "allocator/guest/thread.h"

namespace heaptap {
namespace {

// The host's own functions. The entries of `host` lead to them, perhaps through `nested`.
constinit Host next{};

namespace nested {

// If the product overflows, the charge is wrong, and the host refuses the request.
void* calloc(size_t count, size_t size) {
  TakeBackCharge(count * size);
  return next.calloc(count, size);
}

void* memalign(size_t alignment, size_t size) {
  TakeBackCharge(ChargedSize(size, alignment));
  return next.memalign(alignment, size);
}

int posix_memalign(void** result, size_t alignment, size_t size) {
  TakeBackCharge(ChargedSize(size, alignment));
  return next.posix_memalign(result, alignment, size);
}

void* valloc(size_t size) {
  TakeBackCharge(ChargedSize(size, kPageSize));
  return next.valloc(size);
}

}  // namespace nested

constexpr size_t kTriedAlignment = 64;

// Whether the allocation comes back to the guest.
template <typename Allocate>
bool ComesBack(Allocate allocate) {
  GuestThread& thread = guest_thread;
  const uint64_t saved = thread.left;
  thread.left = kStride;
  void* block = allocate();
  const bool is_charged = thread.left != kStride;
  next.free(block);
  thread.left = saved;
  return is_charged;
}

void* TryPosixMemalign() {
  void* block = nullptr;
  return next.posix_memalign(&block, kTriedAlignment, 1) == 0 ? block : nullptr;
}

}  // namespace

void FindNestedCalls() {
  // Other hosts call their own functions. Each trial would leave its traces in their heaps.
  if (!host_facts.is_musl) return;
  next = host;
  if (ComesBack([] { return next.calloc(1, 1); })) host.calloc = nested::calloc;
  if (ComesBack([] { return next.memalign(kTriedAlignment, 1); })) host.memalign = nested::memalign;
  if (ComesBack(TryPosixMemalign)) host.posix_memalign = nested::posix_memalign;
  if (ComesBack([] { return next.valloc(1); })) host.valloc = nested::valloc;
}

}  // namespace heaptap
