// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/check.h"

#include <stdlib.h>

#include "allocator/platform/system.h"

#ifdef HEAPTAP_DEBUG
namespace heaptap {

constinit std::atomic<uint32_t> check_slack = 0;

namespace {

[[noreturn, gnu::cold, gnu::noinline]] void Fail(const char* equation, const void* object, uint64_t left,
                                                 uint64_t right) {
  Message message;
  message << "<heaptap>: check failed at " << object << ": " << equation << " (" << left << ", " << right << ")\n";
  message.Print();
  abort();
}

}  // namespace

void CheckEqual(const char* equation, const void* object, uint64_t left, uint64_t right) {
  if (left != right) Fail(equation, object, left, right);
}

void CheckLess(const char* equation, const void* object, uint64_t left, uint64_t right) {
  if (left >= right) Fail(equation, object, left, right);
}

void CheckAtMost(const char* equation, const void* object, uint64_t left, uint64_t right) {
  if (left > right) Fail(equation, object, left, right);
}

bool IsOnlyThread() {
#ifdef __SANITIZE_THREAD__
  return ThreadCount() <= 2;
#else
  return ThreadCount() <= 1;
#endif
}

}  // namespace heaptap
#endif
