// SPDX-License-Identifier: Apache-2.0
//
// Every way to allocate, each in its own function, compiled without frame pointers: even a stack walked by frame
// pointers has at least the caller. Each function keeps one block of a unique size.
#include <malloc.h>
#include <stdlib.h>

#include <new>

#define CALLER extern "C" __attribute__((noinline)) void

namespace {

void* volatile kept;

struct alignas(64) Aligned {
  char bytes[64 * 40];
};

}  // namespace

CALLER call_malloc() { kept = malloc(100); }
CALLER call_calloc() { kept = calloc(1, 200); }
CALLER call_realloc() { kept = realloc(nullptr, 300); }
CALLER call_reallocarray() { kept = reallocarray(nullptr, 10, 40); }
CALLER call_memalign() { kept = memalign(16, 500); }
CALLER call_aligned_alloc() { kept = aligned_alloc(16, 608); }
CALLER call_posix_memalign() {
  void* block = nullptr;
  if (posix_memalign(&block, 16, 700) == 0) kept = block;
}
CALLER call_new() { kept = ::operator new(1000); }
CALLER call_new_array() { kept = ::operator new[](1100); }
CALLER call_new_nothrow() { kept = ::operator new(1300, std::nothrow); }
CALLER call_new_aligned() { kept = new Aligned; }
CALLER call_large() { kept = malloc(100000); }
CALLER call_huge() { kept = malloc(40000000); }
CALLER call_new_large() { kept = ::operator new(200000); }

int main() {
  call_malloc();
  call_calloc();
  call_realloc();
  call_reallocarray();
  call_memalign();
  call_aligned_alloc();
  call_posix_memalign();
  call_new();
  call_new_array();
  call_new_nothrow();
  call_new_aligned();
  call_large();
  call_huge();
  call_new_large();
}
