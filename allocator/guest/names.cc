// SPDX-License-Identifier: Apache-2.0
#include "allocator/guest/names.h"

#include <string.h>

#include "allocator/guest/host.h"
#include "allocator/platform/assert.h"
#include "allocator/platform/operators.h"
#include "allocator/platform/own_names.h"

namespace heaptap {
namespace {

constexpr const char* kNames[] = {
#define HEAPTAP_NAME(result, entry, name, parameters, arguments) name,
    HEAPTAP_HOST_C_FUNCTIONS(HEAPTAP_NAME) HEAPTAP_HOST_EXTENDED_FUNCTIONS(HEAPTAP_NAME)
        HEAPTAP_HOST_NEW_FUNCTIONS(HEAPTAP_NAME)
#undef HEAPTAP_NAME
};

bool IsMissing(const char* name) {
  for (const char* one : kNames) {
    if (strcmp(name, one) == 0) return !HasHostFunction(name);
  }
  return false;
}

bool IsMissingOrOperator(const char* name) { return IsOperator(name) || IsMissing(name); }

}  // namespace

void HideMissingNames() {
  HEAPTAP_ASSERT(host_facts.malloc != nullptr);
  HideNames(MayTakeOperators() ? IsMissing : IsMissingOrOperator);
}

}  // namespace heaptap
