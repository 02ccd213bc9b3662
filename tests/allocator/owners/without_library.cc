// SPDX-License-Identifier: Apache-2.0
//
// A program in C++ without a C++ library, which takes its operators from libheaptap.so.
//
//   without_library [fail]      fail: asks for more than there is
#include <malloc.h>
#include <stddef.h>
#include <stdint.h>

#include "check.h"

// The compiler may leave out what it can see to the end.
static volatile size_t huge_size = SIZE_MAX;

int main(int argc, char**) {
  if (argc > 1) {
    void* volatile block = operator new(huge_size);
    return block != nullptr;
  }
  void* volatile block = operator new(100);
  CHECK(malloc_usable_size(block) == 112);
  operator delete(block, static_cast<size_t>(100));
  // Linkers list a function whose address is taken among those that the program defines.
  void (*volatile release)(void*) = ::operator delete;
  release(operator new(100));
  return failures != 0;
}
