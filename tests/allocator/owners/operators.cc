// SPDX-License-Identifier: Apache-2.0
//
// Replaces a pair of operators, as the standard allows it: those of one object, or with ARRAYS those of arrays. Each
// block has a header, so that blocks of others are noticed. Every C++ standard, any C++ library.
#include <cstdlib>
#include <new>

#include "counts.h"

#if __cplusplus < 201103L
#define THROWS throw(std::bad_alloc)
#define NOEXCEPT throw()
#else
#define THROWS
#define NOEXCEPT noexcept
#endif

namespace {

struct counts counted;

// As large as the alignment of every block.
struct Header {
  unsigned long magic;
  unsigned long unused;
};
const unsigned long kMagic = 0xfeedfacecafebeefUL;

void* Allocate(std::size_t size) {
  Header* header = static_cast<Header*>(std::malloc(sizeof(Header) + size));
  if (header == NULL) throw std::bad_alloc();
  header->magic = kMagic;
  counted.allocated++;
  return header + 1;
}

void Release(void* pointer) {
  if (pointer == NULL) return;
  Header* header = static_cast<Header*>(pointer) - 1;
  if (header->magic != kMagic) {
    counted.foreign++;
    return;
  }
  header->magic = 0;
  counted.freed++;
  std::free(header);
}

}  // namespace

#ifdef ARRAYS
void* operator new[](std::size_t size) THROWS { return Allocate(size); }
void operator delete[](void* pointer) NOEXCEPT { Release(pointer); }
#else
void* operator new(std::size_t size) THROWS { return Allocate(size); }
void operator delete(void* pointer) NOEXCEPT { Release(pointer); }
#endif

struct counts Counts() {
  return SinceFirst(counted);
}
