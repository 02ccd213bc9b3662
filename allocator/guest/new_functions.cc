// SPDX-License-Identifier: Apache-2.0
//
// Compiled like fast.cc.
#include "allocator/guest/new_functions.h"

#include <stddef.h>
#include <stdint.h>

#include <new>

#include "allocator/guest/host.h"
#include "allocator/guest/thread.h"
#include "allocator/platform/assert.h"
#include "allocator/platform/operators.h"

namespace heaptap {

bool aligned_new_rounds;

namespace {

// The next operators. The entries of `host` lead to them, perhaps through `charging`.
constinit Host next{};

size_t ChargedNewSize(size_t size) { return PassedSize(size); }
size_t ChargedNewSize(size_t size, const std::nothrow_t&) { return PassedSize(size); }
size_t ChargedNewSize(size_t size, std::align_val_t alignment) {
  return ChargedSize(PassedSize(size, alignment), static_cast<size_t>(alignment));
}
size_t ChargedNewSize(size_t size, std::align_val_t alignment, const std::nothrow_t&) {
  return ChargedNewSize(size, alignment);
}

#define HEAPTAP_CHARGING(result, entry, name, parameters, arguments) \
  namespace charging {                                               \
  result entry parameters {                                          \
    guest_thread.left -= ChargeOf(ChargedNewSize arguments);         \
    return next.entry arguments;                                     \
  }                                                                  \
  }
HEAPTAP_HOST_NEW_FUNCTIONS(HEAPTAP_CHARGING)
#undef HEAPTAP_CHARGING

constexpr std::align_val_t kTriedAlignment{64};

// The charge with which a next operator leads back to the guest. 0: it does not.
template <typename New, typename Delete>
uint64_t TryNew(New allocate, Delete release) {
  // An allocator may register a thread at the thread's first block, and libc allocates for that.
  release(allocate());
  GuestThread& thread = guest_thread;
  const uint64_t saved = thread.left;
  thread.left = kStride;
  void* block = allocate();
  const uint64_t charge = kStride - thread.left;
  release(block);
  thread.left = saved;
  return charge;
}

}  // namespace

void FindNewFunctions() {
  HEAPTAP_ASSERT(MayTakeOperators());
  next = host;
  // A host that has no memory may end the program in an operator new. In that case only allocations that malloc charges
  // are sampled.
  void* block = host.malloc(1);
  host.free(block);
  if (block == nullptr) return;
  const std::nothrow_t nothrow;
// Tries an operator new, and frees the block by the matching operator delete.
#define HEAPTAP_TRY(entry, name, release_name, allocate_arguments, release_entry, release_arguments) \
  if (HasHostFunction(name) && HasHostFunction(release_name) &&                                      \
      TryNew([&] { return next.entry allocate_arguments; },                                          \
             [&](void* block) { next.release_entry release_arguments; }) == 0) {                     \
    host.entry = charging::entry;                                                                    \
  }
  HEAPTAP_TRY(new_plain, "_Znwm", "_ZdlPv", (1), delete_plain, (block))
  HEAPTAP_TRY(new_array, "_Znam", "_ZdaPv", (1), delete_array, (block))
  HEAPTAP_TRY(new_nothrow, "_ZnwmRKSt9nothrow_t", "_ZdlPv", (1, nothrow), delete_plain, (block))
  HEAPTAP_TRY(new_array_nothrow, "_ZnamRKSt9nothrow_t", "_ZdaPv", (1, nothrow), delete_array, (block))
  HEAPTAP_TRY(new_aligned, "_ZnwmSt11align_val_t", "_ZdlPvSt11align_val_t", (1, kTriedAlignment), delete_aligned,
              (block, kTriedAlignment))
  HEAPTAP_TRY(new_array_aligned, "_ZnamSt11align_val_t", "_ZdaPvSt11align_val_t", (1, kTriedAlignment),
              delete_array_aligned, (block, kTriedAlignment))
  HEAPTAP_TRY(new_aligned_nothrow, "_ZnwmSt11align_val_tRKSt9nothrow_t", "_ZdlPvSt11align_val_t",
              (1, kTriedAlignment, nothrow), delete_aligned, (block, kTriedAlignment))
  HEAPTAP_TRY(new_array_aligned_nothrow, "_ZnamSt11align_val_tRKSt9nothrow_t", "_ZdaPvSt11align_val_t",
              (1, kTriedAlignment, nothrow), delete_array_aligned, (block, kTriedAlignment))
#undef HEAPTAP_TRY
  if (!HasHostFunction("_ZnwmSt11align_val_t") || host.new_aligned == charging::new_aligned) return;
  const uint64_t charge = TryNew([] { return next.new_aligned(1, kTriedAlignment); },
                                 [](void* block) { next.delete_aligned(block, kTriedAlignment); });
  aligned_new_rounds = charge != ChargeOf(ChargedSize(1, static_cast<size_t>(kTriedAlignment)));
}

}  // namespace heaptap
