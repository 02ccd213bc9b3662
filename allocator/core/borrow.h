// SPDX-License-Identifier: Apache-2.0
//
// Borrowing the heap of another thread, to take what other threads have freed there: a thread that sleeps does not
// come to collect it.
//
// The borrower and the owner's slow paths exclude each other; the owner's fast paths go on. A slow path stores `busy`
// and then reads `borrowed`; a borrower stores `borrowed` and then reads `busy`. At least one of the two sees the
// other's store, because the borrower makes every running thread of the process execute a barrier (membarrier(2)) in
// between. So the owner needs no barrier of its own.
#ifndef HEAPTAP_ALLOCATOR_CORE_BORROW_H_
#define HEAPTAP_ALLOCATOR_CORE_BORROW_H_

#include <atomic>

#include "allocator/core/heap.h"
#include "allocator/platform/assert.h"
#include "allocator/platform/fence.h"

namespace heaptap {

// REQUIRES: the lock of heaps is held (heap_list.h), so there is one borrower at a time; the heap is not the calling
// thread's. The caller may do with the heap only what heap.h allows a borrower.
class BorrowedHeap {
 public:
  // Does not wait.
  explicit BorrowedHeap(Heap* heap);
  ~BorrowedHeap();
  BorrowedHeap(const BorrowedHeap&) = delete;
  BorrowedHeap& operator=(const BorrowedHeap&) = delete;

  // False: the owner is in a slow path, or the kernel refuses the barrier. The heap may not be used.
  explicit operator bool() const { return is_borrowed_; }
  Heap* operator->() const { return heap_; }

 private:
  Heap* heap_;
  bool is_borrowed_;
};

// Begins a slow path. The caller then reads `borrowed`, unless the heap is a shared one.
inline void SetBusy(Heap* heap) {
  HEAPTAP_ASSERT(heap->busy.load(std::memory_order_relaxed) == 0);
  heap->busy.store(1, std::memory_order_relaxed);
  // The child of a fork must see `busy` set if it sees any change of the heap.
  Fence(std::memory_order_release);
  // For the compiler: the borrower's barrier orders the store and the load of `borrowed`.
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

// For a slow path that has found its heap borrowed: waits until the heap is given back, which takes a bounded number of
// steps of the borrower. Sets `busy` again.
void WaitForBorrower(Heap* heap);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_BORROW_H_
