/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that is called through stubs, bound at the first call. Resolvers that allocate choose the functions
 * resolved_N, so the dynamic linker is in the middle of the stack.
 */
#ifndef LIBPLT_H_
#define LIBPLT_H_

#include <stddef.h>

void plt_nothing(int unused);
int plt_add(int a, int b);
void plt_keep(size_t size);
void plt_call(void (*function)(size_t), size_t size);

#define RESOLVED(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#define DECLARE(n) int resolved_##n(int number);
RESOLVED(DECLARE)
#undef DECLARE

#endif /* LIBPLT_H_ */
