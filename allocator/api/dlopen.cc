// SPDX-License-Identifier: Apache-2.0
//
// dlopen and dlmopen without RTLD_DEEPBIND. A library that is opened with it takes malloc and free from libc, while the
// program takes them from here: the first block that goes from one to the other ends the program. So the flag is
// dropped, and the library binds to what the program binds to. drop_deepbind:false of HEAPTAP_CONF leaves it alone.
//
// The thread also notes that it opens a library, whose unwind tables are to be awaited (code_tables.h).
//
// The functions themselves are in dlopen_entry.S. They ask here what to do, and jump to libc's with the return address
// of their caller: by that address libc knows whose RUNPATH and whose name space count.
#include <dlfcn.h>
#include <stdint.h>

#include <atomic>

#include "allocator/api/symbols.h"
#include "allocator/platform/system.h"
#include "allocator/process/process.h"
#include "allocator/profiling/code_tables.h"

namespace {

// What an entry does: jumps to `function` with another mode. In two registers.
struct Redirection {
  void* function;
  uint64_t mode;
};

void ConfirmOnce(const char* file) {
  static constinit std::atomic<bool> is_said;
  if (!heaptap::ProcessConfiguration().confirm_conf || is_said.exchange(true, std::memory_order_relaxed)) return;
  heaptap::Message message;
  message << "<heaptap>: RTLD_DEEPBIND is dropped from dlopen (HEAPTAP_CONF=drop_deepbind:false keeps it), first for \""
          << file << "\"\n";
  message.Print();
}

uint64_t WithoutDeepbind(const char* file, int mode) {
  heaptap::StartProcess();
  if ((mode & RTLD_DEEPBIND) == 0 || !heaptap::ProcessConfiguration().drop_deepbind || !heaptap::IsInUse()) {
    return static_cast<uint64_t>(mode);
  }
  ConfirmOnce(file != nullptr ? file : "");
  return static_cast<uint64_t>(mode & ~RTLD_DEEPBIND);
}

}  // namespace

extern "C" {

Redirection heaptap_redirect_dlopen(const char* file, int mode) {
  heaptap::NoteOpening(__builtin_frame_address(0));
  return {dlsym(RTLD_NEXT, "dlopen"), WithoutDeepbind(file, mode)};
}

// Another name space has a libc of its own, and this library is not in it.
Redirection heaptap_redirect_dlmopen(Lmid_t space, const char* file, int mode) {
  heaptap::NoteOpening(__builtin_frame_address(0));
  void* function = dlsym(RTLD_NEXT, "dlmopen");
  return {function, space == LM_ID_BASE ? WithoutDeepbind(file, mode) : static_cast<uint64_t>(mode)};
}
}
