// SPDX-License-Identifier: Apache-2.0
//
// Only in libheaptap.so. A family of functions has one owner: where the program or one of its libraries owns a part of
// malloc's family or of the operators new and delete, the preloaded library gives its own names up.
#include <stdlib.h>
#include <unistd.h>

#include "allocator/core/slab.h"
#include "allocator/platform/objects.h"
#include "allocator/platform/operators.h"
#include "allocator/platform/own_names.h"

namespace heaptap {
namespace {

// The sizes with which another malloc is tried: it may serve small ones itself, and pass large ones on.
constexpr size_t kTriedSizes[] = {1, 1 << 20};

// Whether the program's malloc is this library's, or another one that passes calls on. An allocator of the program's
// own may be called before constructors run: the dynamic linker does that too.
bool IsCalledByProgram() {
  const auto programs_malloc = reinterpret_cast<decltype(&malloc)>(FindFirst("malloc"));
  const auto programs_free = reinterpret_cast<decltype(&free)>(FindFirst("free"));
  if (IsSameObject(reinterpret_cast<const void*>(programs_malloc), kTriedSizes)) return true;
  for (const size_t size : kTriedSizes) {
    void* block = programs_malloc(size);
    const bool is_ours = ChunkKind(block) != kForeign;
    programs_free(block);
    if (is_ours) return true;
  }
  return false;
}

bool IsAny(const char*) { return true; }

// Runs before the library's other constructor, which may look for functions.
constexpr int kFirst = 101;

// Runs even before libc's constructor, which sets `environ`. So this function sets `environ`: a malloc of the program
// starts here, and looks for its options.
__attribute__((constructor(kFirst))) void GiveNamesUp(int, char**, char** environment) {
  if (environ == nullptr) environ = environment;
  // A library that was opened by dlopen comes after all others, so lookups find their definitions first.
  if (FindNext("malloc") == nullptr) return;
  if (!IsCalledByProgram()) {
    HideNames(IsAny);
  } else if (!MayTakeOperators()) {
    HideNames(IsOperator);
  }
}

}  // namespace
}  // namespace heaptap
