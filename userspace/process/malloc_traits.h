// SPDX-License-Identifier: Apache-2.0
//
// What a file tells about malloc: whether it has one, and which allocator that is.
#ifndef HEAPTAP_USERSPACE_PROCESS_MALLOC_TRAITS_H_
#define HEAPTAP_USERSPACE_PROCESS_MALLOC_TRAITS_H_

#include <cstdint>

#include "userspace/elf/file.h"

namespace heaptap::process {

enum class MallocKind : uint8_t {
  kOther,
  kGlibc,
  kMusl,
  kJemalloc,
  kTcmalloc,
  kMimalloc,
  // The allocators of sanitizers.
  kAddressSanitizer,
  kHwAddressSanitizer,
  kThreadSanitizer,
  kMemorySanitizer,
  kLeakSanitizer,
};
// "glibc", ...; "" for kOther.
const char* MallocKindName(MallocKind kind);
bool IsSanitizer(MallocKind kind);

// Plain bytes, so that a reader can send it. Each of the first four is 0 or 1.
struct MallocTraits {
  uint8_t has_interpreter = 0;  // an executable that is dynamically linked
  uint8_t exports_malloc = 0;   // malloc and free, for other files too
  uint8_t has_own_malloc = 0;   // for itself only, also under a prefix such as je_; a stripped file does not tell
  uint8_t is_go = 0;            // made by Go's compiler
  MallocKind kind = MallocKind::kOther;
};

// Thread-safe.
MallocTraits ReadMallocTraits(const elf::File& file);

}  // namespace heaptap::process

#endif  // HEAPTAP_USERSPACE_PROCESS_MALLOC_TRAITS_H_
