// SPDX-License-Identifier: Apache-2.0
#include "userspace/recording/stack_memory.h"

#include <utility>

#include "bpf/unwind.h"

namespace heaptap::recording {
namespace {

// Of a chunk without its bytes: an entry of the map, the chunk, and what an allocator adds.
constexpr size_t kOverhead = 128;

}  // namespace

StackMemory::Copy StackMemory::Keep(absl::Span<const uint8_t> memory) {
  Copy copy;
  copy.reserve((memory.size() + HEAPTAP_CHUNK_BYTES - 1) / HEAPTAP_CHUNK_BYTES);
  for (size_t at = 0; at < memory.size(); at += HEAPTAP_CHUNK_BYTES) {
    const absl::Span<const uint8_t> part = memory.subspan(at, HEAPTAP_CHUNK_BYTES);
    const auto bytes = absl::string_view(reinterpret_cast<const char*>(part.data()), part.size());
    auto known = chunks_.find(bytes);
    if (known == chunks_.end()) {
      auto chunk = std::make_unique<Chunk>(Chunk{.bytes = std::string(bytes)});
      known = chunks_.emplace(chunk->bytes, std::move(chunk)).first;
      bytes_ += kOverhead + bytes.size();
    }
    known->second->users++;
    copy.push_back(known->second.get());
  }
  bytes_ += copy.size() * sizeof(void*);
  return copy;
}

std::vector<uint8_t> StackMemory::Get(const Copy& copy) {
  std::vector<uint8_t> memory;
  memory.reserve(copy.size() * HEAPTAP_CHUNK_BYTES);
  for (const Chunk* chunk : copy) memory.insert(memory.end(), chunk->bytes.begin(), chunk->bytes.end());
  return memory;
}

void StackMemory::Drop(const Copy& copy) {
  bytes_ -= copy.size() * sizeof(void*);
  for (Chunk* chunk : copy) {
    if (--chunk->users != 0) continue;
    bytes_ -= kOverhead + chunk->bytes.size();
    chunks_.erase(absl::string_view(chunk->bytes));
  }
}

}  // namespace heaptap::recording
