// SPDX-License-Identifier: Apache-2.0
#include "large.h"

#include "probes.h"
#include "statistics.h"
#include "system.h"
#include "thread.h"
#include "units.h"

namespace heaptap {
namespace {

constexpr size_t kUnit = size_t{1} << kShortShift;

size_t UnitsFor(size_t size) { return (size + kUnit - 1) / kUnit; }

size_t PagesFor(size_t size) { return (size + kPageSize - 1) & ~(kPageSize - 1); }

char* HugeMemory(Huge* huge) { return reinterpret_cast<char*>(huge) + kPageSize; }

void SetChunkKind(const void* pointer, uint8_t kind) {
  chunk_table[reinterpret_cast<uintptr_t>(pointer) >> kChunkShift].store(kind, std::memory_order_release);
}

void CountHuge(int64_t bytes) {
  AddToFigure(&heaptap_statistics::mapped, bytes);
  AddToFigure(&heaptap_statistics::active, bytes);
}

// Puts one allocation to the test. If it is a sample, sets `*sampled` and returns the weight, else returns 0.
uint64_t Test(size_t size, bool* sampled) {
  uint64_t weight = 0;
  {
    HeapScope heap;
    heap->sampler.Follow(CurrentRate());
    if (heap->sampler.TestLarge(size)) weight = SampleWeight(size, heap->sampler.rate());
  }
  *sampled = weight != 0;
  AddToFigure(&heaptap_statistics::large, static_cast<int64_t>(size));
  if (*sampled) AddToFigure(&heaptap_statistics::sampled_objects, 1);
  return weight;
}

// The counterpart of Test when a block goes or changes. The probe fires while the block is still whole.
void Forget(void* pointer, size_t size, bool sampled) {
  AddToFigure(&heaptap_statistics::large, -static_cast<int64_t>(size));
  if (!sampled) return;
  AddToFigure(&heaptap_statistics::sampled_objects, -1);
  heaptap_probe_free(pointer);
}

void* AllocateRun(size_t size, size_t alignment) {
  Slab* run = AllocateUnits(kShortShift, UnitsFor(size), alignment < kUnit ? 1 : alignment / kUnit);
  if (run == nullptr) return nullptr;
  run->size = size;
  run->owner.store(kRunOwner, std::memory_order_relaxed);
  void* pointer = SlabMemory(run);
  uint64_t weight = Test(size, &run->sampled);
  if (weight != 0) heaptap_probe_alloc(pointer, size, weight);
  return pointer;
}

void* AllocateHuge(size_t size, size_t alignment) {
  size_t mapped = PagesFor(size);
  void* pointer = MapAligned(mapped, alignment < kChunkSize ? kChunkSize : alignment, kPageSize);
  if (pointer == nullptr) return nullptr;
  CountHuge(static_cast<int64_t>(mapped));
  SetChunkKind(pointer, kHuge);
  Huge* huge = HugeOf(pointer);
  huge->size = size;
  huge->mapped = mapped;
  uint64_t weight = Test(size, &huge->sampled);
  if (weight != 0) heaptap_probe_alloc(pointer, size, weight);
  return pointer;
}

}  // namespace

Huge* HugeOf(void* pointer) {
  if ((reinterpret_cast<uintptr_t>(pointer) & (kChunkSize - 1)) != 0) return nullptr;
  return reinterpret_cast<Huge*>(static_cast<char*>(pointer) - kPageSize);
}

void* AllocateLarge(size_t size, size_t alignment) {
  bool fits = size <= kRunMaximum && alignment < kRunMaximum;
  return fits ? AllocateRun(size, alignment) : AllocateHuge(size, alignment);
}

bool LargeIsZero(void* pointer) {
  uint8_t kind = ChunkKind(pointer);
  return kind == kHuge || SlabOf(pointer, kind)->fresh;
}

void FreeRun(Slab* run) {
  Forget(SlabMemory(run), run->size, run->sampled);
  ReleaseUnits(run);
  HeapScope counts_as_a_slow_path;
}

void FreeHuge(Huge* huge) {
  char* pointer = HugeMemory(huge);
  Forget(pointer, huge->size, huge->sampled);
  CountHuge(-static_cast<int64_t>(huge->mapped));
  SetChunkKind(pointer, kForeign);
  Unmap(huge, huge->mapped + kPageSize);
}

bool ResizeRun(Slab* run, size_t size) {
  size_t units = UnitsFor(size);
  if (size > kRunMaximum || (units != run->units && !ResizeUnits(run, units))) return false;
  void* pointer = SlabMemory(run);
  Forget(pointer, run->size, run->sampled);
  run->size = size;
  uint64_t weight = Test(size, &run->sampled);
  if (weight != 0) heaptap_probe_alloc(pointer, size, weight);
  return true;
}

bool ResizeHuge(Huge* huge, size_t size) {
  if (size <= kRunMaximum && size != huge->size) return false;
  size_t mapped = PagesFor(size);
  if (mapped != huge->mapped && !ResizeMapping(huge, huge->mapped + kPageSize, mapped + kPageSize)) return false;
  char* pointer = HugeMemory(huge);
  Forget(pointer, huge->size, huge->sampled);
  CountHuge(static_cast<int64_t>(mapped) - static_cast<int64_t>(huge->mapped));
  huge->size = size;
  huge->mapped = mapped;
  uint64_t weight = Test(size, &huge->sampled);
  if (weight != 0) heaptap_probe_alloc(pointer, size, weight);
  return true;
}

void* MoveHuge(Huge* huge, size_t size) {
  char* source = HugeMemory(huge);
  size_t mapped = PagesFor(size);
  char* target = static_cast<char*>(MapAligned(mapped, kChunkSize, kPageSize));
  if (target == nullptr) return nullptr;
  size_t old_size = huge->size;
  size_t old_mapped = huge->mapped;
  bool old_sampled = huge->sampled;
  // The old address is about to become anybody's, so its free comes first.
  Forget(source, old_size, old_sampled);
  SetChunkKind(source, kForeign);
  if (!MoveMapping(huge, old_mapped + kPageSize, mapped + kPageSize, target - kPageSize)) {
    // The system is out of mappings. The block stays where it was, as a new allocation.
    SetChunkKind(source, kHuge);
    uint64_t weight = Test(old_size, &huge->sampled);
    if (weight != 0) heaptap_probe_alloc(source, old_size, weight);
    Unmap(target - kPageSize, mapped + kPageSize);
    return nullptr;
  }
  SetChunkKind(target, kHuge);
  CountHuge(static_cast<int64_t>(mapped) - static_cast<int64_t>(old_mapped));
  Huge* moved = HugeOf(target);
  moved->size = size;
  moved->mapped = mapped;
  uint64_t weight = Test(size, &moved->sampled);
  if (weight != 0) heaptap_probe_alloc(target, size, weight);
  return target;
}

}  // namespace heaptap
