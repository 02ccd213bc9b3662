// SPDX-License-Identifier: Apache-2.0
//
// Litmus tests: the protocols by which threads share memory without a lock, as a few accesses each, under Relacy, which
// tries all interleavings, and all older values that the C++ memory model lets a load return. x86 shows hardly any.
//
// A protocol numbers its orders from 1 on. It must hold with all of them, and fail without any one of them: an order
// without which it holds is not needed, or not tested.
#ifndef HEAPTAP_TESTS_LITMUS_LITMUS_H_
#define HEAPTAP_TESTS_LITMUS_LITMUS_H_

#include <iostream>
#include <ostream>
#include <relacy/relacy.hpp>

// The number of the order that is left out. 0: none.
inline int left_out;

inline rl::memory_order Order(int number, rl::memory_order order) {
  return number == left_out ? rl::mo_relaxed : order;
}

inline void Fence(int number, rl::memory_order order) {
  if (number != left_out) rl::atomic_thread_fence(order, $);
}

// Searches, and writes what is found to the stream.
template <typename Protocol>
bool Holds(std::ostream* stream) {
  rl::test_params params;
  params.search_type = rl::sched_full;
  params.output_stream = stream;
  params.progress_stream = stream;
  rl::simulate<Protocol>(params);
  return params.test_result == rl::test_result_success;
}

// The exit status of a test of the protocol, which has so many orders.
template <typename Protocol>
int Litmus(int orders) {
  std::ostream nowhere(nullptr);
  if (!Holds<Protocol>(&nowhere)) {
    Holds<Protocol>(&std::cout);
    return 1;
  }
  int status = 0;
  for (left_out = 1; left_out <= orders; left_out++) {
    if (!Holds<Protocol>(&nowhere)) continue;
    std::cout << "holds without order " << left_out << "\n";
    status = 1;
  }
  return status;
}

#endif  // HEAPTAP_TESTS_LITMUS_LITMUS_H_
