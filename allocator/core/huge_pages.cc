// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/huge_pages.h"

#include <stddef.h>

#include "allocator/core/options.h"
#include "allocator/platform/system.h"

namespace heaptap {

void AdviseHugePages(void* address, size_t size, bool kernel_may_decide) {
  if (core_options.thp == Thp::kAlways) {
    AskForHugePages(address, size);
  } else if (core_options.thp == Thp::kNever || !kernel_may_decide) {
    ForbidHugePages(address, size);
  }
}

}  // namespace heaptap
