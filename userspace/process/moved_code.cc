// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/moved_code.h"

#include <string.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/elf/moved_code.h"
#include "userspace/process/handle.h"
#include "userspace/process/maps.h"

namespace heaptap::process {
namespace {

// More pieces than a program moves, but few enough to compare.
constexpr size_t kMostPieces = 64;
// The bytes that are compared at the beginning, in the middle and at the end of a piece. Code that was compiled at run
// time differs from its first instruction on.
constexpr size_t kCompared = 256;

bool IsSame(const Handle& process, int file, const elf::MovedCode& code, uint64_t at) {
  char memory[kCompared];
  char content[kCompared];
  return process.Read(code.start + at, memory, sizeof(memory)).ok() &&
         pread(file, content, sizeof(content), static_cast<off_t>(code.file_offset + at)) == sizeof(content) &&
         memcmp(memory, content, sizeof(content)) == 0;
}

bool IsOfItsFile(pid_t pid, const Handle& process, const elf::MovedCode& code) {
  const absl::StatusOr<MappedFile> file = OpenMapped(pid, code.neighbour);
  if (!file.ok()) return false;
  const uint64_t last = code.end - code.start - kCompared;  // a piece has at least a page
  for (const uint64_t at : {uint64_t{0}, last / 2, last}) {
    if (!IsSame(process, file->file.get(), code, at)) return false;
  }
  return true;
}

}  // namespace

std::string NameMovedCode(pid_t pid, std::string maps) {
  std::vector<elf::MovedCode> moved = elf::FindMovedCode(maps, kMostPieces);
  if (moved.empty()) return maps;
  const absl::StatusOr<Handle> process = Handle::Open(pid);
  if (!process.ok()) return maps;
  std::erase_if(moved, [&](const elf::MovedCode& code) { return !IsOfItsFile(pid, *process, code); });
  return elf::WithMovedCode(maps, moved);
}

}  // namespace heaptap::process
