/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For test programs in C: a condition that does not hold is printed and counted, and the program goes on.
 */
#ifndef HEAPTAP_TESTS_ALLOCATOR_CHECK_H_
#define HEAPTAP_TESTS_ALLOCATOR_CHECK_H_

#include <stdio.h>

static int failures;

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      failures++;                                                     \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                 \
  } while (0)

#endif /* HEAPTAP_TESTS_ALLOCATOR_CHECK_H_ */
