// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/borrow.h"

#include <errno.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>

#include <atomic>

#include "allocator/platform/mutex.h"
#include "allocator/platform/system.h"

namespace heaptap {
namespace {

// Makes every running thread of the process execute a full barrier. False: the kernel refuses.
bool BarrierInAllThreads() {
  const long result = SystemCall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0);
  if (result != -EPERM) return result == 0;
  // The process has not registered yet.
  return SystemCall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0) == 0 &&
         SystemCall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0) == 0;
}

}  // namespace

BorrowedHeap::BorrowedHeap(Heap* heap) : heap_(heap) {
  HEAPTAP_ASSERT(Mutex::Holds(LockRank::kHeaps) && heap != current_heap);
  heap->borrowed.store(1, std::memory_order_relaxed);
  // Acquire: pairs with the end of the owner's last slow path.
  is_borrowed_ = BarrierInAllThreads() && heap->busy.load(std::memory_order_acquire) == 0;
}

BorrowedHeap::~BorrowedHeap() {
  // Release: pairs with the owner's next slow path.
  heap_->borrowed.store(0, std::memory_order_release);
  SystemCall(SYS_futex, reinterpret_cast<long>(&heap_->borrowed), FUTEX_WAKE_PRIVATE, 1);
}

void WaitForBorrower(Heap* heap) {
  while (heap->borrowed.load(std::memory_order_acquire) != 0) {
    heap->busy.store(0, std::memory_order_release);
    SystemCall(SYS_futex, reinterpret_cast<long>(&heap->borrowed), FUTEX_WAIT_PRIVATE, 1, 0);
    SetBusy(heap);
  }
}

}  // namespace heaptap
