// SPDX-License-Identifier: Apache-2.0
#include "xmalloc.h"

#include <stdlib.h>

#include "process.h"
#include "system.h"

namespace heaptap {

void OnOutOfMemory(const char* error) {
  if (!ProcessConfiguration().xmalloc) return;
  Message message;
  message << "<jemalloc>: " << error << ": out of memory\n";
  message.Print();
  abort();
}

}  // namespace heaptap
