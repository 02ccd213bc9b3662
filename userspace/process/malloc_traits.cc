// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/malloc_traits.h"

#include <elf.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/elf/functions.h"

namespace heaptap::process {
namespace {

// Each function marks an allocator: no other allocator has the function, except allocators earlier in the list.
struct Mark {
  absl::string_view function;
  MallocKind kind;
};
constexpr Mark kMarks[] = {
    {"__asan_init", MallocKind::kAddressSanitizer}, {"__hwasan_init", MallocKind::kHwAddressSanitizer},
    {"__tsan_init", MallocKind::kThreadSanitizer},  {"__msan_init", MallocKind::kMemorySanitizer},
    {"__lsan_init", MallocKind::kLeakSanitizer},    {"mallctl", MallocKind::kJemalloc},
    {"je_mallctl", MallocKind::kJemalloc},          {"_rjem_mallctl", MallocKind::kJemalloc},
    {"tc_version", MallocKind::kTcmalloc},          {"mi_version", MallocKind::kMimalloc},
    {"mi_malloc", MallocKind::kMimalloc},           {"gnu_get_libc_version", MallocKind::kGlibc},
    {"__libc_malloc", MallocKind::kGlibc},          {"__libc_start_main", MallocKind::kMusl},
};

// Programs have an allocator of their own under these names. (_rjem_: Rust's crate of jemalloc.)
constexpr absl::string_view kMallocs[] = {"malloc", "je_malloc", "_rjem_malloc", "mi_malloc", "tc_malloc"};

constexpr absl::string_view kFree = "free";

constexpr absl::string_view kGoSection = ".go.buildinfo";

}  // namespace

const char* MallocKindName(MallocKind kind) {
  switch (kind) {
    case MallocKind::kGlibc:
      return "glibc";
    case MallocKind::kMusl:
      return "musl";
    case MallocKind::kJemalloc:
      return "jemalloc";
    case MallocKind::kTcmalloc:
      return "tcmalloc";
    case MallocKind::kMimalloc:
      return "mimalloc";
    case MallocKind::kAddressSanitizer:
      return "AddressSanitizer";
    case MallocKind::kHwAddressSanitizer:
      return "HWAddressSanitizer";
    case MallocKind::kThreadSanitizer:
      return "ThreadSanitizer";
    case MallocKind::kMemorySanitizer:
      return "MemorySanitizer";
    case MallocKind::kLeakSanitizer:
      return "LeakSanitizer";
    case MallocKind::kOther:
      break;
  }
  return "";
}

bool IsSanitizer(MallocKind kind) { return kind >= MallocKind::kAddressSanitizer; }

MallocTraits ReadMallocTraits(const elf::File& file) {
  std::vector<absl::string_view> names(std::begin(kMallocs), std::end(kMallocs));
  names.push_back(kFree);
  for (const Mark& mark : kMarks) names.push_back(mark.function);
  const elf::DefinedFunctions functions = elf::FindFunctions(file, names);
  const auto has = [&functions](absl::string_view name) {
    return functions.exported.contains(std::string(name)) || functions.internal.contains(std::string(name));
  };
  MallocTraits traits;
  traits.has_interpreter =
      std::ranges::any_of(file.segments(), [](const elf::Segment& segment) { return segment.type == PT_INTERP; });
  traits.exports_malloc = functions.exported.contains("malloc") && functions.exported.contains("free");
  traits.has_own_malloc = traits.exports_malloc == 0 && std::ranges::any_of(kMallocs, has);
  traits.is_go = file.FindSection(kGoSection) != nullptr;
  const auto mark = std::ranges::find_if(kMarks, [&](const Mark& candidate) { return has(candidate.function); });
  if (mark != std::end(kMarks)) traits.kind = mark->kind;
  return traits;
}

}  // namespace heaptap::process
