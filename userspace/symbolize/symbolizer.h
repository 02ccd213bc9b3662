// SPDX-License-Identifier: Apache-2.0
//
// Functions (including inlined ones), files and lines for addresses of a recorded process.
//
// Names come from the .symtab of the mapped file, the .symtab of its debug file, and the .dynsym of the mapped file;
// inlined functions, files and lines come from the debug information of the mapped file, else of its debug file. Debug
// files are opened by debug_files.h, so never a file that the process could have written.
//
// The mapped file may be hostile. It is read in confined processes (confined.h), one for each call with new addresses.
// A file that crashes, stalls or bloats its reader loses only its own names: what was found before counts, and the
// stage that failed is not tried again with this file.
//
// Not thread-safe. The conditions of RunConfined apply.
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

// Bound of the addresses that one confined process looks up.
inline constexpr size_t kMaxBatch = 1 << 14;

class Symbolizer {
 public:
  struct Options {
    // Bytes of memory for answers. The least recently used file is dropped first; a file with more answers is not kept.
    uint64_t cache_bytes = 64 << 20;
    std::string debug_root = "/usr/lib/debug";
    Limits limits = {};  // for one confined process
  };

  explicit Symbolizer(Options options);

  // The frames of each of `file_offsets`, in any order, of the mapped file open at `fd` (elf::OpenMapped,
  // elf::OpenByPath). Of `mapping` only the path is used, for the folder of .gnu_debuglink. Each offset lies inside an
  // instruction: a return address minus 1. One call for many offsets is much cheaper than many calls. Frames are empty
  // where nothing was found: not an ELF file, no symbols, not code, an unreadable file.
  std::vector<Frames> Symbolize(const elf::Mapping& mapping, int fd, absl::Span<const uint64_t> file_offsets);

  // Approximate bytes of memory in use.
  uint64_t cache_bytes() const { return cached_bytes_; }

 private:
  // A file in one state: device, inode, last change, size. A changed file has another key.
  using Version = std::tuple<uint32_t, uint32_t, uint64_t, int64_t, uint32_t, uint64_t>;
  struct File {
    absl::flat_hash_map<uint64_t, Frames> by_offset;
    Names names;
    Stage last_stage = Stage::kDwarf;  // the last stage that has not failed
    uint64_t frames_bytes = 0;
    uint64_t bytes = 0;  // its part of cached_bytes_
    std::list<Version>::iterator used;
  };

  void Ask(File& file, const elf::Mapping& mapping, int fd, absl::Span<const uint64_t> offsets);
  void MakeRoom();

  const Options options_;
  std::map<Version, File> files_;
  std::list<Version> used_;  // most recently used first
  uint64_t cached_bytes_ = 0;
};

// The file offset of an address in a mapping.
inline uint64_t FileOffset(const elf::Mapping& mapping, uint64_t address) {
  return address - mapping.start + mapping.file_offset;
}

}  // namespace heaptap::symbolize

#endif  // HEAPTAP_USERSPACE_SYMBOLIZE_SYMBOLIZER_H_
