// SPDX-License-Identifier: Apache-2.0
//
// dlopen and dlmopen without RTLD_DEEPBIND. A library opened with this flag takes malloc and free from libc, while the
// program takes them from here; the program crashes when a block from one is freed by the other. So the flag is
// dropped, unless HEAPTAP_CONF has drop_deepbind:false.
//
// Both also note that the thread opens a library, so that its next sample waits for unwind tables (code_tables.h).
//
// The functions themselves are in dlopen_entry.S. They call the functions here, then jump to libc's, which see the
// return address of the original caller: libc uses it to find the caller's RUNPATH and namespace.
#include <dlfcn.h>
#include <stdint.h>

#include <atomic>

#include "allocator/api/symbols.h"
#include "allocator/platform/objects.h"
#include "allocator/platform/system.h"
#include "allocator/process/process.h"
#include "allocator/profiling/code_tables.h"

namespace {

// Where an entry jumps to, and with which mode. Returned in two registers.
struct Redirection {
  void* function;
  uint64_t mode;
};

void ConfirmOnce(const char* file) {
  static constinit std::atomic<bool> is_reported;
  if (!heaptap::ProcessConfiguration().confirm_conf || is_reported.exchange(true, std::memory_order_relaxed)) return;
  heaptap::Message message;
  message << "<heaptap>: RTLD_DEEPBIND is dropped from dlopen (HEAPTAP_CONF=drop_deepbind:false keeps it), first for \""
          << file << "\"\n";
  message.Print();
}

uint64_t WithoutDeepbind(const char* file, int mode) {
  if ((mode & RTLD_DEEPBIND) == 0 || !heaptap::IsInUse()) return static_cast<uint64_t>(mode);
  heaptap::StartProcess();
  if (!heaptap::ProcessConfiguration().drop_deepbind) return static_cast<uint64_t>(mode);
  ConfirmOnce(file != nullptr ? file : "");
  return static_cast<uint64_t>(mode & ~RTLD_DEEPBIND);
}

// For a libc without the function: musl has no dlmopen, and before glibc 2.34 a program without libdl has neither
// function.
void* Refuse() { return nullptr; }

// libc's function, or Refuse: a program finds the name in this library even if its libc lacks it.
void* FindFunction(const char* name) {
  void* function = heaptap::FindNext(name);
  return function != nullptr ? function : reinterpret_cast<void*>(&Refuse);
}

}  // namespace

extern "C" {

Redirection heaptap_redirect_dlopen(const char* file, int mode) {
  heaptap::NoteOpening(__builtin_frame_address(0));
  return {FindFunction("dlopen"), WithoutDeepbind(file, mode)};
}

// Other namespaces have their own libc, and do not contain this library.
Redirection heaptap_redirect_dlmopen(Lmid_t space, const char* file, int mode) {
  heaptap::NoteOpening(__builtin_frame_address(0));
  void* function = FindFunction("dlmopen");
  return {function, space == LM_ID_BASE ? WithoutDeepbind(file, mode) : static_cast<uint64_t>(mode)};
}
}
