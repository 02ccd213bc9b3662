// SPDX-License-Identifier: Apache-2.0
#include "allocator/guest/start.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <atomic>

#include "allocator/api/symbols.h"
#include "allocator/core/control.h"
#include "allocator/guest/host.h"
#include "allocator/guest/host_name.h"
#include "allocator/guest/leak_checker.h"
#include "allocator/guest/names.h"
#include "allocator/guest/nested_calls.h"
#include "allocator/guest/new_functions.h"
#include "allocator/guest/thread.h"
#include "allocator/platform/objects.h"
#include "allocator/platform/operators.h"
#include "allocator/platform/system.h"
#include "allocator/process/option_sources.h"
#include "allocator/process/process.h"
#include "heaptap/contract.h"

namespace heaptap {

constinit std::atomic<GuestState> guest_state{};

namespace {

// Whether a call of the program's malloc comes here. Tried, because another malloc may pass the call on.
bool IsCalledByProgram(void* programs_malloc) {
  GuestThread& thread = guest_thread;
  thread.left = kStride;
  // Does not call free directly: the program's free may be another function.
  void* block = reinterpret_cast<decltype(&malloc)>(programs_malloc)(1);
  const bool is_charged = thread.left != kStride;
  thread.left = 0;
  void* programs_free = FindFirst("free");
  if (programs_free != nullptr) reinterpret_cast<decltype(&free)>(programs_free)(block);
  return is_charged;
}

const char* FileOf(const void* function) {
  const char* name = FindObject(function).name;
  if (name != nullptr && name[0] != '\0') return name;
  const char* program = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  return program != nullptr ? program : "the program";
}

// Says why the guest is passive.
void Report(const char* reason, const char* file, const char* rest) {
  Message message;
  message << "<heaptap>: libheaptap-guest.so takes no samples: " << reason << file << rest << "\n";
  message.Print();
}

GuestState Judge() {
  void* programs_malloc = FindFirst("malloc");
  if (programs_malloc != nullptr && !IsInAllocator(programs_malloc) && !IsCalledByProgram(programs_malloc)) {
    Report("malloc is that of ", FileOf(programs_malloc), "; only a library before the allocator can be a guest");
    return GuestState::kPassive;
  }
  if (const void* other = FindNext(HEAPTAP_CONTROL_SYMBOL)) {
    Report("", FileOf(other), " is loaded too, and takes them itself");
    return GuestState::kPassive;
  }
  return GuestState::kActive;
}

// Takes over the variables that programs set for all allocators. The guest does not export these variables, since a
// host may.
void AdoptProgramVariables() {
  const auto adopt = [](const char* name, auto* own) {
    void* variable = FindFirst(name);
    if (variable != nullptr) *own = *static_cast<decltype(own)>(variable);
  };
  adopt("malloc_conf", &malloc_conf);
  adopt("malloc_conf_2_conf_harder", &malloc_conf_2_conf_harder);
}

}  // namespace

void StartGuestSlowly() {
  // Allocations of the start itself pass unsampled.
  GuestThread& thread = guest_thread;
  if (thread.starts) return;
  thread.starts = true;
  const int saved = errno;
  FindHost();
  GuestState judged = Judge();
  if (judged == GuestState::kActive) {
    // A host may start with its first block: some hosts expect no free and no operator before it.
    host.free(host.malloc(1));
    FindNestedCalls();
    if (MayTakeOperators()) FindNewFunctions();
    AdoptProgramVariables();
  }
  GuestState before = GuestState::kUnknown;
  guest_state.compare_exchange_strong(before, judged, std::memory_order_acq_rel);
  if (IsGuestActive()) {
    // The host's name follows, but a collector may look now.
    control::SetHost("?");
    StartProcess();
  }
  // The allocations that have passed were charged to the countdown of an inactive guest.
  ResetCountdown();
  errno = saved;
  thread.starts = false;
}

bool IsInUse() { return IsGuestActive(); }

namespace {

// The linker flag -z initfirst makes this the first constructor of all, so the names are gone before other constructors
// look for them. It even comes before libc's, which sets `environ`: the host, which starts here, looks for its options.
__attribute__((constructor)) void Construct(int, char**, char** environment) {
  if (environ == nullptr) environ = environment;
  StartGuest();
  HideMissingNames();
  if (IsGuestActive()) {
    PublishHostName();
    TellLeakChecker();
  }
  ResetCountdown();
}

}  // namespace
}  // namespace heaptap
