// SPDX-License-Identifier: Apache-2.0
#include "userspace/unwind/stack_copy.h"

#include <string.h>

#include <algorithm>

#include "bpf/unwind.h"

namespace heaptap::unwind {
namespace {

// Up to this number of parts, parts that are gone are not looked for.
constexpr size_t kFewParts = 4096;

StackCopy::Part MakePart(absl::Span<const uint8_t> memory) {
  // Not make_shared: an entry for a part that is gone would keep its memory.
  auto* const bytes = new uint8_t[memory.size()];
  std::copy(memory.begin(), memory.end(), bytes);
  return StackCopy::Part(bytes);
}

size_t CountParts(absl::Span<const uint8_t> memory) {
  return (memory.size() + HEAPTAP_CHUNK_BYTES - 1) / HEAPTAP_CHUNK_BYTES;
}

}  // namespace

StackCopy::StackCopy(absl::Span<const uint8_t> memory) : bytes_(memory.size()) {
  parts_.reserve(CountParts(memory));
  for (size_t at = 0; at < memory.size(); at += HEAPTAP_CHUNK_BYTES) {
    parts_.push_back(MakePart(memory.subspan(at, HEAPTAP_CHUNK_BYTES)));
  }
}

bool StackCopy::ReadWord(uint64_t offset, uint64_t& word) const {
  if (offset > bytes_ || bytes_ - offset < sizeof(word)) return false;
  auto* const to = reinterpret_cast<uint8_t*>(&word);
  const size_t at = offset % HEAPTAP_CHUNK_BYTES;
  // The word may lie in two parts.
  const size_t in_first = std::min(sizeof(word), HEAPTAP_CHUNK_BYTES - at);
  const size_t first = offset / HEAPTAP_CHUNK_BYTES;
  memcpy(to, parts_[first].get() + at, in_first);
  if (in_first < sizeof(word)) memcpy(to + in_first, parts_[first + 1].get(), sizeof(word) - in_first);
  return true;
}

StackCopy StackCopier::Copy(uint64_t process_id, uint64_t address, absl::Span<const uint8_t> memory) {
  std::vector<StackCopy::Part> parts;
  parts.reserve(CountParts(memory));
  for (size_t at = 0; at < memory.size(); at += HEAPTAP_CHUNK_BYTES) {
    const absl::Span<const uint8_t> bytes = memory.subspan(at, HEAPTAP_CHUNK_BYTES);
    // A shorter part is the last one, and does not lie at the same address again.
    if (bytes.size() < HEAPTAP_CHUNK_BYTES) {
      parts.push_back(MakePart(bytes));
      bytes_made_ += bytes.size() + kOverhead;
      continue;
    }
    std::weak_ptr<const uint8_t[]>& latest = latest_[{process_id, address + at}];
    StackCopy::Part part = latest.lock();
    if (part == nullptr || memcmp(part.get(), bytes.data(), bytes.size()) != 0) {
      part = MakePart(bytes);
      latest = part;
      bytes_made_ += bytes.size() + kOverhead;
    }
    parts.push_back(std::move(part));
  }
  if (latest_.size() > most_known_) ForgetGone();
  return {std::move(parts), memory.size()};
}

void StackCopier::ForgetGone() {
  absl::erase_if(latest_, [](const auto& entry) { return entry.second.expired(); });
  most_known_ = std::max(kFewParts, 2 * latest_.size());
}

}  // namespace heaptap::unwind
