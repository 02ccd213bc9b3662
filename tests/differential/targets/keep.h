/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every target of the differential test uses: a function that is not inlined, and an allocation that the compiler
 * can neither leave out nor move. Blocks stay.
 */
#ifndef KEEP_H_
#define KEEP_H_

#include <stdlib.h>

#define NOINLINE __attribute__((noinline, noclone))

static void* volatile kept;

/* Inlined: the caller is the innermost frame. */
static inline __attribute__((always_inline)) void keep(size_t size) { kept = malloc(size); }

/* Put after a call: it is not the last thing that its function does, so it is no jump. */
#define NOT_A_TAIL_CALL __asm__ volatile("")

#endif /* KEEP_H_ */
