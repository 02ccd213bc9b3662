// SPDX-License-Identifier: Apache-2.0
//
// What fuzzers hold against what they test.
#ifndef HEAPTAP_TESTS_FUZZ_CHECK_H_
#define HEAPTAP_TESTS_FUZZ_CHECK_H_

#include <cstdio>
#include <cstdlib>

// Ends the fuzzer, which keeps the input.
inline void Check(bool condition, const char* what = __builtin_FILE(), int line = __builtin_LINE()) {
  if (condition) return;
  fprintf(stderr, "%s:%d: the check failed\n", what, line);
  abort();
}

#endif  // HEAPTAP_TESTS_FUZZ_CHECK_H_
