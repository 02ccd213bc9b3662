// SPDX-License-Identifier: Apache-2.0
//
// The slow paths of sample.h and of libheaptap-guest.a.
//
// Compiled with tail calls: each function jumps to the probe, so that the caller in the recorded stack is the allocator
// even where the control block does not know the bounds of this code.
#include "heaptap/sample.h"

#include <stddef.h>
#include <stdint.h>

#include "allocator/platform/mathematics.h"
#include "allocator/sample/control.h"
#include "allocator/sample/probes.h"
#include "allocator/sample/remembered.h"
#include "allocator/sample/threads.h"
#include "allocator/sample/wrapped.h"
#include "heaptap/contract.h"

namespace heaptap::sample {
namespace {

// Set in the number of each heap, so that no tag is 0: malloc's blocks have no tag.
constexpr uint64_t kHeapBit = uint64_t{1} << 63;
// The heap of libheaptap-guest.a. No named heap has this tag, since the tags of named heaps have bit 62.
constexpr uint64_t kWrappedHeap = kHeapBit | uint64_t{1} << 48;
constexpr uint64_t kNamedBit = uint64_t{1} << 62;

// The number of a heap (HEAPTAP_HEAP_TAG, HEAPTAP_HEAP_NAME_ID). Reads the name, so that the kernel finds it in memory.
uint64_t HeapOf(const char* name) {
  if (name == nullptr || *name == '\0') return kHeapBit;
  // FNV-1a. Equal numbers would mix up two heaps of one program; with a hundred names the odds are one in a million.
  uint64_t hash = 0xcbf29ce484222325;
  for (int i = 0; i < HEAPTAP_HEAP_NAME_BYTES - 1 && name[i] != '\0'; i++) {
    hash = (hash ^ static_cast<unsigned char>(name[i])) * 0x100000001b3;
  }
  // The last byte alone would hardly reach the tag.
  hash = (hash ^ (hash >> 32)) * 0x9e3779b97f4a7c15;
  hash ^= hash >> 29;
  const uint64_t id = HEAPTAP_HEAP_NAME_ID(hash) != 0 ? HEAPTAP_HEAP_NAME_ID(hash) : 1;
  return kHeapBit | kNamedBit | ((hash >> 1) & (kNamedBit - (uint64_t{1} << 48))) | id;
}

double ProbabilityOf(uint64_t bytes, uint32_t lg) {
  return OneMinusExp(static_cast<double>(bytes) / static_cast<double>(uint64_t{1} << lg));
}

uint64_t WeightOf(size_t size, double probability) {
  return static_cast<uint64_t>(static_cast<double>(size) / probability + 0.5);
}

}  // namespace
}  // namespace heaptap::sample

using namespace heaptap::sample;

extern "C" {

const void* heaptap_sample_mark_slow(const char* heap, const void* block, size_t size) {
  const uint32_t lg = EndCountdown(size);
  if (lg == kOff || block == nullptr) return nullptr;
  const uint64_t weight = lg == 0 ? size : WeightOf(size, ProbabilityOf(size, lg));
  return heaptap_sample_probe_alloc(block, size, weight, HeapOf(heap), heap);
}

const void* heaptap_sample_alloc_slow(const char* heap, const void* block, size_t size) {
  const uint32_t lg = EndCountdown(size);
  if (lg == kOff || block == nullptr || !Remember(block, HeapOf(heap))) return nullptr;
  const uint64_t weight = lg == 0 ? size : WeightOf(size, ProbabilityOf(size, lg));
  return heaptap_sample_probe_alloc(block, size, weight, HeapOf(heap), heap);
}

void heaptap_sample_free_slow(const char* heap, const void* block) {
  if (Forget(block, HeapOf(heap))) heaptap_sample_probe_free(block, HeapOf(heap));
}

void heaptap_heap_sample_free_range(const char* heap, const void* begin, size_t size) {
  ForgetRange(begin, size, HeapOf(heap), heaptap_sample_probe_free);
}

void heaptap_heap_mark_free(const char* heap, const void* block) { heaptap_sample_probe_free(block, HeapOf(heap)); }

void* heaptap_sample_wrapped_alloc(void* block, uint64_t charge, size_t (*usable_size)(void*), size_t size) {
  const uint32_t lg = EndCountdown(charge);
  if (lg == kOff || block == nullptr) return block;
  const size_t usable = usable_size != nullptr ? usable_size(block) : size;
  if (usable == 0) return block;
  uint64_t weight = usable;
  if (lg != 0) {
    // The law of guest/decision.h: the charge is hardly ever below the size.
    const double charged = ProbabilityOf(charge, lg);
    const double probability = usable <= charge ? ProbabilityOf(usable, lg) : charged;
    if (DrawUnit() * charged > probability) return block;
    weight = WeightOf(usable, probability);
  }
  if (!Remember(block, kWrappedHeap)) return block;
  return heaptap_sample_probe_alloc(block, usable, weight, kWrappedHeap, nullptr);
}

void heaptap_sample_wrapped_free(const void* block) {
  if (Forget(block, kWrappedHeap)) heaptap_sample_probe_free(block, kWrappedHeap);
}

}  // extern "C"
