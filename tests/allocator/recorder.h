// SPDX-License-Identifier: Apache-2.0
//
// Stands in for the probes in unit tests: keeps the books that a collector would keep. Thread safe.
#ifndef HEAPTAP_TESTS_ALLOCATOR_RECORDER_H_
#define HEAPTAP_TESTS_ALLOCATOR_RECORDER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "heaptap/contract.h"

namespace heaptap::testing {

struct Books {
  uint64_t allocs = 0;
  uint64_t frees = 0;
  uint64_t bytes = 0;   // of the allocs
  uint64_t weight = 0;  // of the allocs
  uint64_t live = 0;
  uint64_t starts = 0;
  std::vector<std::string> thread_names = {};
  uint64_t errors = 0;  // an alloc of a live pointer, a free of one that is not
  // By the serial numbers of samples:
  uint64_t numbered = 0;        // samples whose free was not reported
  uint64_t reports = 0;         // firings of heaptap:frees with frees
  uint64_t largest_report = 0;  // frees in one of them
  uint64_t ends = 0;            // firings without
};

Books ReadBooks();

// Forgets everything but what is live.
void ClearBooks();

// Sampling at 2^lg bytes on average while it lives, seen by each thread at its next slow path.
class SamplingOn {
 public:
  explicit SamplingOn(uint32_t lg);
  ~SamplingOn();
};

// A listener to heaptap:frees while it lives.
class FreesHeard {
 public:
  FreesHeard();
  ~FreesHeard();
};

// What heaptap:dump does; by default nothing.
void SetDumpHandler(std::function<void(heaptap_dump_request*)> handler);

}  // namespace heaptap::testing

#endif  // HEAPTAP_TESTS_ALLOCATOR_RECORDER_H_
