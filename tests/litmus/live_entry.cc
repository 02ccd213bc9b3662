// SPDX-License-Identifier: Apache-2.0
//
// fill_in and remove_live of bpf/books.bpf.h: who takes a serial number away has read the object with that number.
#include "tests/litmus/litmus.h"

namespace {

constexpr int kClaimed = 0;

struct LiveEntry : rl::test_suite<LiveEntry, 2> {
  rl::atomic<int> serial;
  rl::atomic<int> size;

  void before() {
    serial.store(kClaimed, rl::mo_relaxed, $);
    size.store(1, rl::mo_relaxed, $);
  }

  void thread(unsigned number) { number == 0 ? FillIn() : Remove(); }

  void FillIn() {
    size.store(2, rl::mo_relaxed, $);
    serial.store(2, Order(1, rl::mo_release), $);
  }

  void Remove() {
    if (serial.load(Order(2, rl::mo_acquire), $) != 2) return;
    const int found = size.load(rl::mo_relaxed, $);
    int expected = 2;
    if (serial.compare_exchange_strong(expected, kClaimed, rl::mo_seq_cst, $)) RL_ASSERT(found == 2);
  }
};

}  // namespace

int main() { return Litmus<LiveEntry>(2); }
