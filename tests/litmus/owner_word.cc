// SPDX-License-Identifier: Apache-2.0
//
// Heap::MarkNotFull of a borrower, and Free of the owner: who finds its heap in the owner word finds local_free as the
// borrower has left it.
#include "tests/litmus/litmus.h"

namespace {

constexpr int kFull = 0;
constexpr int kHeap = 1;

struct OwnerWord : rl::test_suite<OwnerWord, 2> {
  rl::atomic<int> owner;
  rl::var<int> local_free;

  void before() {
    owner.store(kFull, rl::mo_relaxed, $);
    local_free($) = 0;
  }

  void thread(unsigned number) { number == 0 ? MarkNotFull() : Free(); }

  void MarkNotFull() {
    local_free($) = 1;
    owner.store(kHeap, Order(1, rl::mo_release), $);
  }

  void Free() {
    if (owner.load(rl::mo_relaxed, $) != kHeap) return;
    Fence(2, rl::mo_acquire);
    RL_ASSERT(local_free($) == 1);
    local_free($) = 2;
  }
};

}  // namespace

int main() { return Litmus<OwnerWord>(2); }
