// SPDX-License-Identifier: Apache-2.0
//
// From an address in a recorded process to functions, inlined ones included, files and lines.
//
// Names come from the mapped file's .symtab, its debug file's .symtab and its .dynsym; inlined functions, files and
// lines from its own debug information, or else from its debug file's: below the folder of debug files, by build-id or
// .gnu_debuglink, and only what root alone can write. Nothing is looked for where the process could have put it.
//
// The file is whatever a process mapped. It is read in confined processes (confined.h), one for each call that asks for
// something new, so that a file which crashes, stalls or bloats its reader costs its own names and nothing else: what
// was found before that counts, and what failed is not tried with this file again.
//
// Not thread safe. RunConfined's conditions hold.
#ifndef HEAPTAP_USERSPACE_SYMBOLIZE_SYMBOLIZER_H_
#define HEAPTAP_USERSPACE_SYMBOLIZE_SYMBOLIZER_H_

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "userspace/elf/mappings.h"
#include "userspace/symbolize/answer.h"
#include "userspace/symbolize/confined.h"
#include "userspace/symbolize/frame.h"

namespace heaptap::symbolize {

// Addresses that one confined process looks up.
inline constexpr size_t kMaxBatch = 1 << 14;

class Symbolizer {
 public:
  struct Options {
    // Of memory for what is known already. The least recently used file goes first; one whose answers alone are more
    // is not kept.
    uint64_t cache_bytes = 64 << 20;
    std::string debug_root = "/usr/lib/debug";
    Limits limits = {};  // of one confined process
  };

  explicit Symbolizer(Options options);

  // The frames of each of `file_offsets` (in any order) of the file open at `fd`, which must be the very file that is
  // mapped (elf::OpenMapped, elf::OpenByPath); `mapping` is used for nothing but its path, which names the folder of
  // .gnu_debuglink. Each offset lies within an instruction: a return address minus 1. Asking for many at once is much
  // cheaper than asking for one after the other.
  // Frames are empty where nothing is known: not an ELF file, no symbols, not code, a file that cannot be read.
  std::vector<Frames> Symbolize(const elf::Mapping& mapping, int fd, absl::Span<const uint64_t> file_offsets);

  // Of memory in use, roughly.
  uint64_t cache_bytes() const { return cached_bytes_; }

 private:
  // A file as it is now: device, inode, last change, size. The change of a file changes it too.
  using Version = std::tuple<uint32_t, uint32_t, uint64_t, int64_t, uint32_t, uint64_t>;
  struct File {
    absl::flat_hash_map<uint64_t, Frames> by_offset;
    Names names;
    Stage last_stage = Stage::kDwarf;  // what has not failed yet
    uint64_t frames_bytes = 0;
    uint64_t bytes = 0;  // of all, as it counts in cached_bytes_
    std::list<Version>::iterator used;
  };

  void Ask(File& file, const elf::Mapping& mapping, int fd, absl::Span<const uint64_t> offsets);
  void MakeRoom();

  const Options options_;
  std::map<Version, File> files_;
  std::list<Version> used_;  // the most recently used first
  uint64_t cached_bytes_ = 0;
};

// The file offset of an address in a mapping.
inline uint64_t FileOffset(const elf::Mapping& mapping, uint64_t address) {
  return address - mapping.start + mapping.file_offset;
}

}  // namespace heaptap::symbolize

#endif  // HEAPTAP_USERSPACE_SYMBOLIZE_SYMBOLIZER_H_
