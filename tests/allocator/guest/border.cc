// SPDX-License-Identifier: Apache-2.0
//
// Blocks cross the border between the guest and its host in every direction: random allocations, resizes and frees, by
// every function that the allocator has for them, while sampling is switched on and off. Each block is filled up to its
// usable size. The seed is the first argument, the number of steps the second.
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <new>
#include <random>
#include <vector>

#include "check.h"
#include "sampling.h"

namespace {

struct Block {
  unsigned char* pointer = nullptr;
  size_t size = 0;       // requested, all of it filled with `value`
  size_t alignment = 1;  // above what every block has: only sized and aligned deletes may free it then
  unsigned char value = 0;
  enum : unsigned char { kC, kNew, kNewArray } kind = kC;
};

std::mt19937_64 chance;
size_t Random(size_t most) { return chance() % (most + 1); }

template <typename Function>
Function* Named(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

using Allocate = void*(size_t);
using Release = void(void*);
using Resize = void*(void*, size_t);

// Functions of the hosts that take the blocks of malloc. Those that a host lacks are left out.
template <typename Function>
std::vector<Function*> Present(std::initializer_list<const char*> names) {
  std::vector<Function*> found;
  for (const char* name : names) {
    if (auto* function = Named<Function>(name)) found.push_back(function);
  }
  return found;
}

struct Functions {
  std::vector<Allocate*> allocates = Present<Allocate>({"malloc", "tc_malloc"});
  std::vector<Release*> frees =
      Present<Release>({"free", "free", "free", "cfree", "tc_free", "tc_cfree", "mi_free", "mi_cfree", "vfree"});
  std::vector<Resize*> resizes =
      Present<Resize>({"realloc", "realloc", "tc_realloc", "mi_realloc", "reallocf", "mi_reallocf", "mi_rezalloc"});
  std::vector<size_t (*)(void*)> sizes =
      Present<size_t(void*)>({"malloc_usable_size", "tc_malloc_size", "mi_usable_size", "malloc_size", "mi_malloc_size",
                              "mi_malloc_usable_size", "MallocExtension_GetAllocatedSize"});
  std::vector<Release*> deletes = Present<Release>({"_ZdlPv", "tc_delete"});
  std::vector<Release*> array_deletes = Present<Release>({"_ZdaPv", "tc_deletearray"});
  std::vector<void (*)(void*, const std::nothrow_t&)> nothrow_deletes =
      Present<void(void*, const std::nothrow_t&)>({"_ZdlPvRKSt9nothrow_t", "tc_delete_nothrow"});
  std::vector<void (*)(void*, size_t)> sized_deletes = Present<void(void*, size_t)>({"_ZdlPvm", "tc_delete_sized"});
  std::vector<void (*)(void*, size_t, size_t)> sized_aligned_deletes =
      Present<void(void*, size_t, size_t)>({"_ZdlPvmSt11align_val_t", "tc_delete_sized_aligned"});
  std::vector<void (*)(void*, size_t)> aligned_deletes =
      Present<void(void*, size_t)>({"_ZdlPvSt11align_val_t", "tc_delete_aligned"});
  std::vector<void (*)(void*, size_t)> sized_frees = Present<void(void*, size_t)>({"free_sized", "mi_free_size"});
  std::vector<Resize*> expands = Present<Resize>({"mi_expand"});
  void* (*mallocx)(size_t, int) = Named<void*(size_t, int)>("mallocx");
  void* (*rallocx)(void*, size_t, int) = Named<void*(void*, size_t, int)>("rallocx");
  size_t (*xallocx)(void*, size_t, size_t, int) = Named<size_t(void*, size_t, size_t, int)>("xallocx");
  size_t (*sallocx)(const void*, int) = Named<size_t(const void*, int)>("sallocx");
  void (*dallocx)(void*, int) = Named<void(void*, int)>("dallocx");
  void (*sdallocx)(void*, size_t, int) = Named<void(void*, size_t, int)>("sdallocx");
  int (*reallocarr)(void*, size_t, size_t) = Named<int(void*, size_t, size_t)>("reallocarr");
  void* (*reallocn)(void*, size_t, size_t) = Named<void*(void*, size_t, size_t)>("mi_reallocn");
  void* (*recalloc)(void*, size_t, size_t) = Named<void*(void*, size_t, size_t)>("mi_recalloc");
};

template <typename Function>
Function OneOf(const std::vector<Function>& functions) {
  return functions[Random(functions.size() - 1)];
}

int LgOf(size_t alignment) { return __builtin_ctzl(alignment); }

// Rarely one that has a mapping of its own.
size_t RandomSize() {
  constexpr size_t kMost[] = {16, 100, 1000, 5000, 40000, 200000};
  return Random(999) == 0 ? Random(40 << 20) : Random(kMost[Random(5)]);
}

void Fill(Block* block) {
  block->value = static_cast<unsigned char>(chance());
  memset(block->pointer, block->value, block->size);
}

bool IsFilled(const Block& block, size_t bytes) {
  return bytes == 0 || (block.pointer[0] == block.value && memcmp(block.pointer, block.pointer + 1, bytes - 1) == 0);
}

Block New(const Functions& functions) {
  Block block;
  block.size = RandomSize();
  const size_t alignment = size_t{8} << Random(Random(7) == 0 ? 14 : 6);
  switch (Random(11)) {
    case 0:
    case 1:
    case 2:
      block.pointer = static_cast<unsigned char*>(OneOf(functions.allocates)(block.size));
      break;
    case 3: {
      block.pointer = static_cast<unsigned char*>(calloc(block.size / 8 + 1, 8));
      for (size_t i = 0; i < block.size; i++) CHECK(block.pointer[i] == 0);
      break;
    }
    case 4:
      block.pointer = static_cast<unsigned char*>(OneOf(functions.resizes)(nullptr, block.size + 1));
      break;
    case 5: {
      void* pointer = nullptr;
      CHECK(posix_memalign(&pointer, alignment, block.size + 1) == 0);
      block.pointer = static_cast<unsigned char*>(pointer);
      CHECK(reinterpret_cast<uintptr_t>(pointer) % alignment == 0);
      break;
    }
    case 6:
      block.pointer = static_cast<unsigned char*>(memalign(alignment, block.size + 1));
      CHECK(reinterpret_cast<uintptr_t>(block.pointer) % alignment == 0);
      break;
    case 7:
      block.kind = Block::kNew;
      block.pointer = static_cast<unsigned char*>(operator new(block.size));
      break;
    case 8:
      block.kind = Block::kNewArray;
      block.pointer = static_cast<unsigned char*>(operator new[](block.size));
      break;
    case 9:
      block.kind = Block::kNew;
      block.alignment = alignment < 32 ? 32 : alignment;
      block.size++;
      block.pointer = static_cast<unsigned char*>(operator new(block.size, std::align_val_t(block.alignment)));
      CHECK(reinterpret_cast<uintptr_t>(block.pointer) % block.alignment == 0);
      break;
    default:
      if (functions.mallocx == nullptr) {
        block.pointer = static_cast<unsigned char*>(malloc(block.size));
      } else {
        block.size++;
        block.pointer = static_cast<unsigned char*>(functions.mallocx(block.size, LgOf(alignment)));
        CHECK(reinterpret_cast<uintptr_t>(block.pointer) % alignment == 0);
      }
  }
  CHECK(block.pointer != nullptr);
  Fill(&block);
  return block;
}

// Growing with malloc_usable_size, as systemd and redis do: all of it is the program's.
void UseAll(const Functions& functions, Block* block) {
  const size_t usable = OneOf(functions.sizes)(block->pointer);
  CHECK(usable >= block->size);
  if (functions.sallocx != nullptr) CHECK(functions.sallocx(block->pointer, 0) == usable);
  CHECK(IsFilled(*block, block->size));
  if (block->kind == Block::kC) block->size = usable;
  memset(block->pointer, block->value, usable);
}

void ResizeBlock(const Functions& functions, Block* block) {
  if (block->kind != Block::kC) return;
  const size_t before = block->size;
  const size_t size = RandomSize() + 1;
  void* pointer = block->pointer;
  switch (Random(5)) {
    case 0:
      if (functions.rallocx != nullptr) {
        const size_t alignment = size_t{8} << Random(8);
        pointer = functions.rallocx(pointer, size, LgOf(alignment) | (Random(1) == 0 ? 0x40 : 0));
        CHECK(reinterpret_cast<uintptr_t>(pointer) % alignment == 0);
        break;
      }
      if (functions.reallocarr != nullptr) {
        CHECK(functions.reallocarr(&pointer, size, 1) == 0);
        break;
      }
      [[fallthrough]];
    case 1:
      pointer = reallocarray(pointer, 1, size);
      break;
    case 2:
      if (functions.xallocx != nullptr) {
        const size_t after = functions.xallocx(pointer, before, 10, 0);
        CHECK(after >= before);
        return;
      }
      if (!functions.expands.empty()) {
        void* expanded = OneOf(functions.expands)(pointer, before);
        CHECK(expanded == nullptr || expanded == pointer);
        return;
      }
      [[fallthrough]];
    case 3:
      if (functions.reallocn != nullptr) {
        pointer = Random(1) == 0 ? functions.reallocn(pointer, size, 1) : functions.recalloc(pointer, 1, size);
        break;
      }
      [[fallthrough]];
    default:
      pointer = OneOf(functions.resizes)(pointer, size);
  }
  CHECK(pointer != nullptr);
  block->pointer = static_cast<unsigned char*>(pointer);
  CHECK(IsFilled(*block, before < size ? before : size));
  block->size = size;
  Fill(block);
}

void Free(const Functions& functions, Block* block) {
  CHECK(IsFilled(*block, block->size));
  errno = 77;
  if (block->kind == Block::kNewArray) {
    OneOf(functions.array_deletes)(block->pointer);
  } else if (block->kind == Block::kNew && block->alignment > 1) {
    Random(1) == 0 ? OneOf(functions.aligned_deletes)(block->pointer, block->alignment)
                   : OneOf(functions.sized_aligned_deletes)(block->pointer, block->size, block->alignment);
  } else if (block->kind == Block::kNew) {
    const size_t way = Random(2);
    if (way == 0) OneOf(functions.deletes)(block->pointer);
    if (way == 1) OneOf(functions.sized_deletes)(block->pointer, block->size);
    if (way == 2) OneOf(functions.nothrow_deletes)(block->pointer, std::nothrow);
  } else if (functions.dallocx != nullptr && Random(3) == 0) {
    functions.dallocx(block->pointer, 0);
  } else {
    OneOf(functions.frees)(block->pointer);
  }
  CHECK(errno == 77);
  *block = Block{};
}

}  // namespace

int main(int argc, char** argv) {
  chance.seed(argc > 1 ? strtoull(argv[1], nullptr, 0) : 1);
  const size_t steps = argc > 2 ? strtoull(argv[2], nullptr, 0) : 20000;
  const Functions functions;
  std::vector<Block> blocks(200);
  SwitchSamplingOn();
  for (size_t step = 0; step < steps && failures == 0; step++) {
    if (step % 16 == 0) Random(1) == 0 ? SwitchSamplingOn() : SwitchSamplingOff();
    Block& block = blocks[Random(blocks.size() - 1)];
    if (block.pointer == nullptr) {
      block = New(functions);
      continue;
    }
    const size_t what = Random(3);
    if (what == 0) UseAll(functions, &block);
    if (what == 1) ResizeBlock(functions, &block);
    if (what >= 2) Free(functions, &block);
  }
  for (Block& block : blocks) {
    if (block.pointer != nullptr) Free(functions, &block);
  }
  return failures != 0;
}
