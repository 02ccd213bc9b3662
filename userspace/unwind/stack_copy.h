// SPDX-License-Identifier: Apache-2.0
//
// Copies of stack memory that share the parts they have in common. Between two copies of one thread's stack, only the
// frames in which the thread works have changed; the memory above them has not.
#ifndef HEAPTAP_USERSPACE_UNWIND_STACK_COPY_H_
#define HEAPTAP_USERSPACE_UNWIND_STACK_COPY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"

namespace heaptap::unwind {

// Immutable, and like a shared_ptr may be copied and destroyed by any thread.
class StackCopy {
 public:
  // HEAPTAP_CHUNK_BYTES bytes; the last part may have fewer.
  using Part = std::shared_ptr<const uint8_t[]>;

  StackCopy() = default;
  // Shares nothing.
  explicit StackCopy(absl::Span<const uint8_t> memory);
  // `parts` have `bytes` bytes together.
  StackCopy(std::vector<Part> parts, size_t bytes) : parts_(std::move(parts)), bytes_(bytes) {}

  size_t size() const { return bytes_; }
  const std::vector<Part>& parts() const { return parts_; }
  // The word at an offset. False: not all of it is in the copy.
  bool ReadWord(uint64_t offset, uint64_t& word) const;

 private:
  std::vector<Part> parts_;
  size_t bytes_ = 0;
};

// Makes copies that share the parts which have not changed since the latest copy of the same addresses. Not
// thread-safe.
class StackCopier {
 public:
  // Bytes that a part takes besides its own: its entry here, its reference counts, and the overhead of the allocator.
  static constexpr size_t kOverhead = 128;

  // `memory`: the memory of the process at `address`.
  StackCopy Copy(uint64_t process_id, uint64_t address, absl::Span<const uint8_t> memory);
  // The size of all parts that were made, including those that are gone.
  uint64_t bytes_made() const { return bytes_made_; }
  // The number of known parts, including some that are gone.
  size_t parts_known() const { return latest_.size(); }

 private:
  void ForgetGone();

  // By process and address.
  absl::flat_hash_map<std::pair<uint64_t, uint64_t>, std::weak_ptr<const uint8_t[]>> latest_;
  size_t most_known_ = 0;  // with more parts, those that are gone are forgotten
  uint64_t bytes_made_ = 0;
};

}  // namespace heaptap::unwind

#endif  // HEAPTAP_USERSPACE_UNWIND_STACK_COPY_H_
