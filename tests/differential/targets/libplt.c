/* SPDX-License-Identifier: Apache-2.0 */
#include "libplt.h"

#include "keep.h"

void plt_nothing(int unused) { (void)unused; }

int plt_add(int a, int b) { return a + b; }

void plt_keep(size_t size) { keep(size); }

/* Called through a stub: the function may belong to another library. */
void plt_call(void (*function)(size_t), size_t size) {
  plt_keep(size + 1);
  function(size);
  NOT_A_TAIL_CALL;
}

/* Each function allocates another size. */
typedef int (*function)(int);

static NOINLINE function resolver(int number, function chosen) {
  keep(1000 * (size_t)number);
  keep(1000 * (size_t)number + 500);
  return chosen;
}

/* clang-format off */
#define DEFINE(n)                                                    \
  static int implementation_##n(int number) { return number + (n); } \
  static function resolve_##n(void) {                                \
    function chosen = resolver(n, implementation_##n);               \
    NOT_A_TAIL_CALL;                                                 \
    return chosen;                                                   \
  }                                                                  \
  int resolved_##n(int number) __attribute__((ifunc("resolve_" #n)));
/* clang-format on */
RESOLVED(DEFINE)
