// SPDX-License-Identifier: Apache-2.0
//
// FreeRemotely of two threads into a full slab, and Heap::NextWake and CollectRemote of its owner: the links of both
// lists are written when the owner finds them.
#include "tests/litmus/litmus.h"

namespace {

constexpr int kNone = -1;
constexpr int kNotify = 2;  // the other values are the numbers of blocks
constexpr int kSlab = 1;

struct Wake : rl::test_suite<Wake, 3> {
  rl::atomic<int> remote_free;
  rl::var<int> next[2];  // of the blocks
  rl::atomic<int> wakes;
  rl::var<int> wake_next;  // of the slab

  void before() {
    remote_free.store(kNotify, rl::mo_relaxed, $);
    wakes.store(kNone, rl::mo_relaxed, $);
    next[0]($) = next[1]($) = kNone;
    wake_next($) = 0;
  }

  void thread(unsigned number) { number == 2 ? Collect() : FreeRemotely(static_cast<int>(number)); }

  void FreeRemotely(int block) {
    int old = remote_free.load(rl::mo_relaxed, $);
    do {
      next[block]($) = old == kNotify ? kNone : old;
    } while (!remote_free.compare_exchange_strong(old, block, Order(1, rl::mo_release), $));
    if (old != kNotify) return;
    int head = wakes.load(rl::mo_relaxed, $);
    do {
      wake_next($) = head;
    } while (!wakes.compare_exchange_strong(head, kSlab, Order(2, rl::mo_release), $));
  }

  void Collect() {
    if (wakes.exchange(kNone, Order(3, rl::mo_acquire), $) != kSlab) return;
    RL_ASSERT(wake_next($) == kNone);
    int block = remote_free.exchange(kNone, Order(4, rl::mo_acquire), $);
    RL_ASSERT(block != kNone && block != kNotify);
    while (block != kNone) block = next[block]($);
  }
};

}  // namespace

int main() { return Litmus<Wake>(4); }
