// SPDX-License-Identifier: Apache-2.0
#include "userspace/base/require.h"

#include <stdio.h>
#include <stdlib.h>

namespace heaptap::base {

bool ChecksPreconditions() {
#ifdef HEAPTAP_DEBUG
  return true;
#else
  return false;
#endif
}

void AbortForPrecondition(const char* condition, const char* file, int line) {
  fprintf(stderr, "%s:%d: REQUIRES does not hold: %s\n", file, line, condition);
  abort();
}

}  // namespace heaptap::base
