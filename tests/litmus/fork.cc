// SPDX-License-Identifier: Apache-2.0
//
// What the child of a fork finds of another thread's heap: with any change of a slow path `busy` is set (SetBusy); a
// notify bit that was taken comes with `waking`, or with the wake on the list (FreeRemotely).
//
// The child is a thread that reads what is written last first.
#include "tests/litmus/litmus.h"

namespace {

enum Waking { kNotYet, kSet, kCleared };

struct Fork : rl::test_suite<Fork, 3> {
  rl::atomic<int> busy;
  rl::atomic<int> change;
  rl::atomic<int> waking;
  rl::atomic<int> is_taken;
  rl::atomic<int> has_wake;

  void before() {
    for (rl::atomic<int>* word : {&busy, &change, &waking, &is_taken, &has_wake}) word->store(0, rl::mo_relaxed, $);
  }

  void thread(unsigned number) { number == 0 ? SlowPath() : number == 1 ? FreeRemotely() : Child(); }

  void SlowPath() {
    busy.store(1, rl::mo_relaxed, $);
    Fence(1, rl::mo_release);
    change.store(1, rl::mo_relaxed, $);
  }

  void FreeRemotely() {
    waking.store(kSet, rl::mo_relaxed, $);
    is_taken.store(1, Order(2, rl::mo_release), $);
    has_wake.store(1, rl::mo_relaxed, $);
    waking.store(kCleared, Order(3, rl::mo_release), $);
  }

  void Child() {
    if (change.load(rl::mo_acquire, $) != 0) RL_ASSERT(busy.load(rl::mo_relaxed, $) != 0);
    const bool was_taken = is_taken.load(rl::mo_acquire, $) != 0;
    const int state = waking.load(rl::mo_acquire, $);
    RL_ASSERT(!was_taken || state != kNotYet);
    if (state == kCleared) RL_ASSERT(has_wake.load(rl::mo_relaxed, $) != 0);
  }
};

}  // namespace

int main() { return Litmus<Fork>(3); }
