// SPDX-License-Identifier: Apache-2.0
//
//   stress [THREADS [GENERATIONS [STEPS]]]
//
// Threads that allocate, check and free blocks of all kinds, in several arenas; that free each other's blocks; that
// make arenas and destroy them with all their blocks; and that die and are replaced while their blocks live on. Each
// block carries its size and a pattern, checked when it is freed. Sampling goes on and off meanwhile, and the books
// must balance in the end.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "allocator/core/allocate.h"
#include "allocator/core/arena.h"
#include "allocator/core/arena_life.h"
#include "allocator/core/check.h"
#include "allocator/core/control.h"
#include "allocator/platform/random.h"
#include "own_heap.h"
#include "recorder.h"

namespace {

using heaptap::Allocate;
using heaptap::Free;

struct Header {
  uint64_t size;
  uint64_t pattern;
};

// Explicit arenas that live as long as the process.
constexpr size_t kArenas = 3;
heaptap::Arena* arenas[kArenas];

constexpr size_t kShared = 4096;
std::atomic<Header*> shared[kShared];  // blocks that anybody may free

[[noreturn]] void Fail(const char* what) {
  fprintf(stderr, "stress: %s\n", what);
  abort();
}

unsigned char PatternByte(const Header* block, size_t i) { return static_cast<unsigned char>(block->pattern + i * 31); }

// The bytes that carry the pattern: the first ones all, then some, wherever the block ends.
size_t Next(size_t i) { return i < 2048 ? i + 1 : i + 509; }

void Fill(Header* block, size_t size, uint64_t pattern) {
  block->size = size;
  block->pattern = pattern;
  unsigned char* bytes = reinterpret_cast<unsigned char*>(block);
  for (size_t i = sizeof(Header); i < size; i = Next(i)) bytes[i] = PatternByte(block, i);
}

void Check(Header* block) {
  if (heaptap::UsableSize(block) < block->size) Fail("usable size is smaller than the request");
  const unsigned char* bytes = reinterpret_cast<const unsigned char*>(block);
  for (size_t i = sizeof(Header); i < block->size; i = Next(i)) {
    if (bytes[i] != PatternByte(block, i)) Fail("a live block has changed");
  }
}

size_t RandomSize(heaptap::Random* random) {
  uint64_t kind = random->Next() % 1000;
  size_t size = kind < 700   ? random->Next() % 512
                : kind < 950 ? random->Next() % 8192
                : kind < 990 ? random->Next() % 65536
                : kind < 999 ? random->Next() % (1 << 20)
                             : random->Next() % (20 << 20);
  return sizeof(Header) + size;
}

Header* Make(heaptap::Random* random) {
  size_t size = RandomSize(random);
  uint64_t pattern = random->Next();
  void* pointer;
  switch (random->Next() % 16) {
    case 0: {
      pointer = heaptap::AllocateZeroed(1, size);
      const unsigned char* bytes = static_cast<unsigned char*>(pointer);
      for (size_t i = 0; i < size; i = Next(i)) {
        if (bytes[i] != 0) Fail("calloc's block is not zero");
      }
      break;
    }
    case 1: {
      size_t alignment = size_t{8} << random->Next() % 15;
      pointer = heaptap::AllocateAligned(alignment, size);
      if (reinterpret_cast<uintptr_t>(pointer) % alignment != 0) Fail("a block is not aligned");
      break;
    }
    case 2:
    case 3:
      pointer = heaptap::AllocateExtended(size, {.arena = arenas[random->Next() % kArenas]->index});
      break;
    default:
      pointer = Allocate(size);
  }
  if (pointer == nullptr) Fail("out of memory");
  Header* block = static_cast<Header*>(pointer);
  Fill(block, size, pattern);
  return block;
}

void Discard(Header* block) {
  if (block == nullptr) return;
  Check(block);
  Free(block);
}

Header* Resize(Header* block, heaptap::Random* random) {
  Check(block);
  size_t size = random->Next() % 4 == 0 ? RandomSize(random) : block->size + random->Next() % 8;
  uint64_t pattern = block->pattern;
  Header* moved = static_cast<Header*>(heaptap::Reallocate(block, size));
  if (moved == nullptr) Fail("out of memory in realloc");
  if (moved->pattern != pattern) Fail("realloc has lost the contents");
  if (moved->size > size) moved->size = size;
  Check(moved);
  Fill(moved, size, pattern);
  return moved;
}

// The equations of the slab of a block that the thread's heap owns, and now and then of all that the thread may read.
void CheckStep(const Header* block, int step) {
  if (step % 256 == 255) heaptap::testing::CheckOwnHeap();
  const unsigned kind = heaptap::ChunkKind(block);
  if (kind <= heaptap::kFreedHuge) return;
  const heaptap::Slab* slab = heaptap::SlabOf(block, kind);
  const uintptr_t owner = slab->owner.load(std::memory_order_relaxed) & ~heaptap::kFullBit;
  if (owner == reinterpret_cast<uintptr_t>(heaptap::current_heap)) heaptap::CheckSlab(slab);
}

// Binds the thread to an arena, perhaps to arena 0.
void Bind(heaptap::Random* random) {
  const uint64_t number = random->Next() % (kArenas + 1);
  if (!heaptap::BindThread(number == kArenas ? heaptap::main_arena : *arenas[number])) Fail("a thread cannot be bound");
}

// An arena that goes with its blocks.
void UseOwnArena(heaptap::Random* random) {
  heaptap::Arena* arena = heaptap::MakeArena();
  if (arena == nullptr) Fail("there are no more arenas");
  for (int i = 0; i < 500; i++) {
    const size_t size = RandomSize(random);
    Header* block = static_cast<Header*>(heaptap::AllocateExtended(size, {.arena = arena->index}));
    Fill(block, size, random->Next());
    if (i % 3 == 0) Discard(block);
    if (i % 200 == 199 && !heaptap::DiscardBlocks(*arena, false)) Fail("an arena cannot be reset");
  }
  if (!heaptap::DiscardBlocks(*arena, true)) Fail("an arena cannot be destroyed");
  heaptap::RetireArena(*arena);
}

void Live(uint64_t seed, int steps) {
  heaptap::Random random;
  random.Seed(seed, 1);
  std::vector<Header*> own(64);
  for (int i = 0; i < steps; i++) {
    Header*& slot = own[random.Next() % own.size()];
    switch (random.Next() % 8) {
      case 0:
        if (slot != nullptr) slot = Resize(slot, &random);
        break;
      case 1:
      case 2:
      case 3: {
        // Give a block away and take another's.
        Header* given = slot;
        slot = nullptr;
        Discard(shared[random.Next() % kShared].exchange(given, std::memory_order_acq_rel));
        break;
      }
      default:
        Discard(slot);
        slot = Make(&random);
    }
    CheckStep(slot, i);
    if (i % 4096 == 4095) heaptap::Trim();
    if (i % 1024 == 1023) Bind(&random);
    if (i % 4096 == 2048) UseOwnArena(&random);
  }
  for (size_t i = 0; i < own.size(); i++) {
    if (i % 2 == 0) {
      Discard(own[i]);
    } else {
      Discard(shared[random.Next() % kShared].exchange(own[i], std::memory_order_acq_rel));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  int threads = argc > 1 ? atoi(argv[1]) : 4;
  int generations = argc > 2 ? atoi(argv[2]) : 10;
  int steps = argc > 3 ? atoi(argv[3]) : 20000;
  for (heaptap::Arena*& arena : arenas) {
    Free(Allocate(1));  // starts the process
    arena = heaptap::MakeArena();
  }
  for (int generation = 0; generation < generations; generation++) {
    constexpr uint32_t kRates[] = {19, 63, 8, 0, 14};
    heaptap::testing::SamplingOn on(kRates[generation % 5]);
    std::vector<std::thread> running;
    for (int i = 0; i < threads; i++) {
      running.emplace_back(Live, static_cast<uint64_t>(generation * 1000 + i), steps);
    }
    for (std::thread& thread : running) thread.join();
  }
  for (std::atomic<Header*>& slot : shared) Discard(slot.exchange(nullptr));
  heaptap::testing::Books books = heaptap::testing::ReadBooks();
  if (books.errors != 0) Fail("a sample was freed twice or never made");
  if (books.live != 0) Fail("a sample was never freed");
  if (heaptap_control.statistics.sampled_objects != 0) Fail("sampled_objects is not 0");
  if (heaptap_control.statistics.large != 0) Fail("large is not 0");
  if (heaptap_control.statistics.foreign_frees != 0) Fail("foreign_frees is not 0");
  heaptap::Trim();
  printf("stress: ok, %llu samples, %llu bytes active, %llu mapped\n", static_cast<unsigned long long>(books.allocs),
         static_cast<unsigned long long>(heaptap_control.statistics.active),
         static_cast<unsigned long long>(heaptap_control.statistics.mapped));
  return 0;
}
