// SPDX-License-Identifier: Apache-2.0
//
// Uses each form of the operators new and delete, and prints what the owner of some of them has counted after each
// (counts.h). A program, or a plugin of tests/allocator/plugin_host.c. Every C++ standard, any C++ library.
#include <stdio.h>

#include <algorithm>
#include <new>
#include <vector>

#include "counts.h"

namespace {

struct Node {
  long fields[5];
};

bool IsLess(const Node& one, const Node& other) { return one.fields[0] < other.fields[0]; }

// The compiler may leave out what it can see to the end.
void* volatile sink;

template <typename Block>
Block* Keep(Block* block) {
  sink = block;
  return static_cast<Block*>(sink);
}

void Print(const char* form) {
  const struct counts counted = Counts();
  printf("%-24s allocated %ld, freed %ld, foreign %ld\n", form, counted.allocated, counted.freed, counted.foreign);
}

void UseAll() {
  Print("the beginning");
  delete Keep(new Node);
  Print("new");
  delete[] Keep(new Node[7]);
  Print("new[]");
  delete Keep(new (std::nothrow) Node);
  Print("nothrow new");
  delete[] Keep(new (std::nothrow) Node[7]);
  Print("nothrow new[]");
  operator delete(Keep(operator new(100)), std::nothrow);
  operator delete[](Keep(operator new[](100)), std::nothrow);
  Print("nothrow delete");
  {
    // Has a buffer of nothrow new.
    std::vector<Node> nodes(5000);
    std::stable_sort(nodes.begin(), nodes.end(), IsLess);
  }
  Print("stable_sort");
#ifdef __cpp_sized_deallocation
  operator delete(Keep(operator new(100)), 100);
  operator delete[](Keep(operator new[](100)), 100);
  Print("sized delete");
#endif
#ifdef __cpp_aligned_new
  const std::align_val_t alignment = std::align_val_t(64);
  operator delete(Keep(operator new(100, alignment)), alignment);
  operator delete[](Keep(operator new[](100, alignment)), alignment);
  operator delete(Keep(operator new(100, alignment, std::nothrow)), 100, alignment);
  operator delete[](Keep(operator new[](100, alignment, std::nothrow)), 100, alignment);
  operator delete(Keep(operator new(100, alignment)), alignment, std::nothrow);
  operator delete[](Keep(operator new[](100, alignment)), alignment, std::nothrow);
  Print("aligned new");
#endif
}

}  // namespace

// Status: whether there were foreign blocks.
extern "C" int plugin() {
  UseAll();
  // The libc of another namespace does not do it at the end of the process.
  fflush(stdout);
  return Counts().foreign != 0;
}

int main() { return plugin(); }
