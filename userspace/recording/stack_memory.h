// SPDX-License-Identifier: Apache-2.0
//
// Copies of stacks, each distinct part once. Copies from one thread have most of their memory in common: what lies
// above the frames in which it works.
#ifndef HEAPTAP_USERSPACE_RECORDING_STACK_MEMORY_H_
#define HEAPTAP_USERSPACE_RECORDING_STACK_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace heaptap::recording {

// Thread-compatible.
class StackMemory {
 private:
  struct Chunk {
    std::string bytes;
    size_t users = 0;
  };

 public:
  // What Keep() was given. Valid until it is dropped.
  using Copy = std::vector<Chunk*>;

  // `memory` begins at a multiple of HEAPTAP_CHUNK_BYTES in the process.
  Copy Keep(absl::Span<const uint8_t> memory);
  static std::vector<uint8_t> Get(const Copy& copy);
  void Drop(const Copy& copy);

  // Of all copies, with what it takes to keep them.
  size_t bytes() const { return bytes_; }

 private:
  // By their bytes, to which the key refers.
  absl::flat_hash_map<absl::string_view, std::unique_ptr<Chunk>> chunks_;
  size_t bytes_ = 0;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_RECORDING_STACK_MEMORY_H_
