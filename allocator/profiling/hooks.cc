// SPDX-License-Identifier: Apache-2.0
#include "allocator/profiling/hooks.h"

namespace heaptap {

constinit Hooks hooks{};
constinit thread_local bool in_hook = false;

}  // namespace heaptap
