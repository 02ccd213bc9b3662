// SPDX-License-Identifier: Apache-2.0
//
// make_salt of bpf/code.bpf.h in two programs of one process: who finds the new state of the mappings finds the new
// number of their changes, and so no rules of the old mappings.
#include "tests/litmus/litmus.h"

namespace {

struct Mappings : rl::test_suite<Mappings, 2> {
  rl::atomic<int> state;
  rl::atomic<int> changes;

  void before() {
    state.store(0, rl::mo_relaxed, $);
    changes.store(0, rl::mo_relaxed, $);
  }

  void thread(unsigned) {
    if (state.load(Order(1, rl::mo_acquire), $) != 1) {
      changes.fetch_add(1, rl::mo_relaxed, $);
      state.store(1, Order(2, rl::mo_release), $);
    }
    RL_ASSERT(changes.load(rl::mo_relaxed, $) != 0);
  }
};

}  // namespace

int main() { return Litmus<Mappings>(2); }
