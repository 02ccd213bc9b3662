// SPDX-License-Identifier: Apache-2.0
//
// HeapScope of the owner, and BorrowedHeap: at most one of them uses the heap, and each sees what the other has done.
//
// membarrier(2) interrupts the owner at some place with a full barrier, for which the borrower waits. The place is
// chosen at random; the borrower gives up where it would wait. Order 1 is the barrier.
#include "tests/litmus/litmus.h"

namespace {

struct Borrow : rl::test_suite<Borrow, 2> {
  static constexpr unsigned kPlaces = 4;
  rl::atomic<int> busy;
  rl::atomic<int> borrowed;
  rl::atomic<int> is_asked;
  rl::atomic<int> is_answered;
  rl::var<int> heap;
  unsigned place;

  void before() {
    for (rl::atomic<int>* word : {&busy, &borrowed, &is_asked, &is_answered}) word->store(0, rl::mo_relaxed, $);
    heap($) = 0;
    place = rl::rand(kPlaces);
  }

  void thread(unsigned number) { number == 0 ? SlowPath() : BorrowHeap(); }

  void Interrupt(unsigned at) {
    if (at != place || is_asked.load(rl::mo_acquire, $) == 0) return;
    rl::atomic_thread_fence(rl::mo_seq_cst, $);
    is_answered.store(1, rl::mo_release, $);
  }

  bool Barrier() {
    if (left_out == 1) return true;
    rl::atomic_thread_fence(rl::mo_seq_cst, $);
    is_asked.store(1, rl::mo_release, $);
    return is_answered.load(rl::mo_acquire, $) != 0;
  }

  void SlowPath() {
    Interrupt(0);
    busy.store(1, rl::mo_relaxed, $);
    Interrupt(1);
    const bool is_free = borrowed.load(Order(2, rl::mo_acquire), $) == 0;
    Interrupt(2);
    if (is_free) heap($) = heap($) + 1;
    busy.store(0, Order(3, rl::mo_release), $);
    Interrupt(3);
  }

  void BorrowHeap() {
    borrowed.store(1, rl::mo_relaxed, $);
    if (Barrier() && busy.load(Order(4, rl::mo_acquire), $) == 0) heap($) = heap($) + 1;
    borrowed.store(0, Order(5, rl::mo_release), $);
  }
};

}  // namespace

int main() { return Litmus<Borrow>(5); }
