// SPDX-License-Identifier: Apache-2.0
//
// What a C++ program may expect of the operators new and delete. Run it with libheaptap.so preloaded.
//
//   cxx_operators [fail]      fail: asks for more than there is, and the new handler ends the program
#include <dlfcn.h>
#include <malloc.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <new>

#include "check.h"

namespace {

// The compiler may leave out what it can see to the end.
void* volatile sink;
volatile size_t huge_size = SIZE_MAX;

void Names() {
  for (const char* name :
       {"_Znwm", "_Znam", "_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t", "_ZnwmSt11align_val_t", "_ZnamSt11align_val_t",
        "_ZnwmSt11align_val_tRKSt9nothrow_t", "_ZnamSt11align_val_tRKSt9nothrow_t",
        // operator delete
        "_ZdlPv", "_ZdaPv", "_ZdlPvRKSt9nothrow_t", "_ZdaPvRKSt9nothrow_t", "_ZdlPvm", "_ZdaPvm",
        "_ZdlPvSt11align_val_t", "_ZdaPvSt11align_val_t", "_ZdlPvSt11align_val_tRKSt9nothrow_t",
        "_ZdaPvSt11align_val_tRKSt9nothrow_t", "_ZdlPvmSt11align_val_t", "_ZdaPvmSt11align_val_t"}) {
    void* symbol = dlsym(RTLD_DEFAULT, name);
    Dl_info info;
    if (symbol != nullptr && dladdr(symbol, &info) != 0 && strstr(info.dli_fname, "libheaptap") != nullptr) continue;
    failures++;
    fprintf(stderr, "%s is not heaptap's\n", name);
  }
}

void Blocks() {
  void* pointer = operator new(100);
  CHECK(malloc_usable_size(pointer) == 112);
  operator delete (pointer, size_t{100});
  constexpr std::align_val_t kAlignment{256};
  pointer = operator new(100, kAlignment);
  CHECK(reinterpret_cast<uintptr_t>(pointer) % 256 == 0);
  operator delete(pointer, 100, kAlignment);
  CHECK(operator new(huge_size, std::nothrow) == nullptr);
  operator delete(nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "fail") == 0) {
    sink = operator new(huge_size);
    return 1;
  }
  Names();
  Blocks();
  return failures != 0;
}
