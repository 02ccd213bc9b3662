/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For test programs in C: the allocator's functions by name, so that a program runs on jemalloc too.
 */
#ifndef HEAPTAP_TESTS_ALLOCATOR_FIND_H_
#define HEAPTAP_TESTS_ALLOCATOR_FIND_H_

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* Ends the program if there is no such function. */
static void* Find(const char* name) {
  void* symbol = dlsym(RTLD_DEFAULT, name);
  if (symbol == NULL) {
    fprintf(stderr, "%s is missing\n", name);
    exit(1);
  }
  return symbol;
}

#endif /* HEAPTAP_TESTS_ALLOCATOR_FIND_H_ */
