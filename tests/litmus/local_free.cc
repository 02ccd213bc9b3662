// SPDX-License-Identifier: Apache-2.0
//
// PushLocalFree of the owner, and IsFreedByOthers of a borrower: who finds no used block of the owner's finds
// local_free as the owner has left it.
#include "tests/litmus/litmus.h"

namespace {

struct LocalFree : rl::test_suite<LocalFree, 2> {
  rl::atomic<int> used;
  rl::var<int> local_free;

  void before() {
    used.store(1, rl::mo_relaxed, $);
    local_free($) = 0;
  }

  void thread(unsigned number) { number == 0 ? PushLocalFree() : Reclaim(); }

  void PushLocalFree() {
    local_free($) = 1;
    used.store(used.load(rl::mo_relaxed, $) - 1, Order(1, rl::mo_release), $);
  }

  void Reclaim() {
    if (used.load(Order(2, rl::mo_acquire), $) != 0) return;
    RL_ASSERT(local_free($) == 1);
    local_free($) = 0;
  }
};

}  // namespace

int main() { return Litmus<LocalFree>(2); }
