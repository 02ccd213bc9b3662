/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Common to all targets of the differential test: a function that is not inlined, and an allocation that the compiler
 * can neither remove nor move. Blocks stay.
 */
#ifndef KEEP_H_
#define KEEP_H_

#include <stdlib.h>

#define NOINLINE __attribute__((noinline, noclone))

static void* volatile kept;

/* Inlined: the caller is the innermost frame. */
static inline __attribute__((always_inline)) void keep(size_t size) { kept = malloc(size); }

/* Follows a call, so that the call is not the last action of its function and cannot become a jump. */
#define NOT_A_TAIL_CALL __asm__ volatile("")

#endif /* KEEP_H_ */
