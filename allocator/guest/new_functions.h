// SPDX-License-Identifier: Apache-2.0
//
// Operators new come in two kinds. An operator of a C++ library calls malloc, and so comes back to the guest, which
// charges the allocation there. An operator of an allocator serves the block itself, so the allocation must be charged
// before.
#ifndef HEAPTAP_ALLOCATOR_GUEST_NEW_FUNCTIONS_H_
#define HEAPTAP_ALLOCATOR_GUEST_NEW_FUNCTIONS_H_

#include <stddef.h>

#include <new>

namespace heaptap {

// Whether the aligned operators new of the C++ library round the size up to the alignment before they call malloc. Most
// do, since aligned_alloc may insist on it.
extern bool aligned_new_rounds;

// The size with which an operator new comes back. With another size, the second charge would differ from the first.
inline size_t PassedSize(size_t size) { return size != 0 ? size : 1; }

inline size_t PassedSize(size_t size, std::align_val_t alignment) {
  const size_t mask = aligned_new_rounds ? static_cast<size_t>(alignment) - 1 : 0;
  return (PassedSize(size) + mask) & ~mask;
}

// Finds out by trying which of the host's operators new lead back to the guest's malloc. In place of the others, `host`
// gets functions that charge the allocation and jump on. Called once, after FindHost, before the guest takes samples.
// REQUIRES: MayTakeOperators. The operators of a program must not be called before its constructors have run.
void FindNewFunctions();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_GUEST_NEW_FUNCTIONS_H_
