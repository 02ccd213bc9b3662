// SPDX-License-Identifier: Apache-2.0
//
// A pool of large buffers in C++, each its own mapping, and an arena that is emptied at once. The buffers have a header
// with a bit to spare, so the pool itself remembers which buffers are samples.
//
//   buffers KEPT GIVEN_BACK EMPTIED
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <new>

#include "heaptap/sample.h"

namespace {

constexpr char kBuffers[] = "buffers";
constexpr char kArena[] = "arena 1";

void* Map(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return memory;
}

class Buffer {
 public:
  static Buffer* Take(size_t bytes) {
    Buffer* buffer = new (Map(sizeof(Buffer) + bytes)) Buffer(bytes);
    buffer->is_sample_ = heaptap_heap_mark_alloc(kBuffers, buffer->bytes(), bytes);
    return buffer;
  }

  void Give() {
    if (is_sample_) heaptap_heap_mark_free(kBuffers, bytes());
    munmap(this, sizeof(*this) + size_);
  }

  void* bytes() { return this + 1; }

 private:
  explicit Buffer(size_t size) : size_(size) {}
  size_t size_;
  bool is_sample_ = false;
};

class Arena {
 public:
  explicit Arena(size_t bytes) : begin_(static_cast<char*>(Map(bytes))), size_(bytes) {}

  void* Take(size_t bytes) {
    void* block = begin_ + used_;
    used_ += (bytes + 15) & ~size_t{15};
    heaptap_heap_sample_alloc(kArena, block, bytes);
    return block;
  }

  void Empty() {
    heaptap_heap_sample_free_range(kArena, begin_, used_);
    used_ = 0;
  }

 private:
  char* begin_;
  size_t size_;
  size_t used_ = 0;
};

}  // namespace

extern "C" [[gnu::noinline]] void buffers_keep(long count) {
  for (long i = 0; i < count; i++) Buffer::Take(100000);
}

extern "C" [[gnu::noinline]] void buffers_churn(long count) {
  for (long i = 0; i < count; i++) Buffer::Take(100000)->Give();
}

extern "C" [[gnu::noinline]] void arena_fill(Arena& arena, long count) {
  for (long i = 0; i < count; i++) arena.Take(24);
}

int main(int count, char** arguments) {
  if (count < 4) return 2;
  buffers_keep(atol(arguments[1]));
  buffers_churn(atol(arguments[2]));
  const long emptied = atol(arguments[3]);
  Arena arena(static_cast<size_t>(emptied) * 32 + 32);
  for (int round = 0; round < 3; round++) {
    arena_fill(arena, emptied);
    if (round < 2) arena.Empty();
  }
  printf("done\n");
  return 0;
}
