// SPDX-License-Identifier: Apache-2.0
#include "allocator/guest/copy.h"

#include <string.h>

#include "allocator/core/size_class.h"

namespace heaptap {
namespace {

// A search for zeros ends at the first other byte. Below this size it saves too little memory.
constexpr size_t kSparse = size_t{1} << 20;

bool IsZero(const char* page, size_t bytes) { return page[0] == 0 && memcmp(page, page + 1, bytes - 1) == 0; }

}  // namespace

void CopyTo(void* target, bool is_zero, const void* source, size_t bytes) {
  if (!is_zero || bytes < kSparse) {
    memcpy(target, source, bytes);
    return;
  }
  char* to = static_cast<char*>(target);
  const char* from = static_cast<const char*>(source);
  for (size_t done = 0; done < bytes; done += kPageSize) {
    const size_t part = bytes - done < kPageSize ? bytes - done : kPageSize;
    if (!IsZero(from + done, part)) memcpy(to + done, from + done, part);
  }
}

}  // namespace heaptap
