// SPDX-License-Identifier: Apache-2.0
//
// Which site of otel_memory:alloc a thread uses. Both mean the same to a listener.
//
// A probe on a one-byte nop is a breakpoint. Linux 6.18 turns a probe on a five-byte nop into a call and a system call,
// which take three fifths of the time. But the child of a fork then has the call without the code that it leads to, and
// crashes. So children use the site with the breakpoint, however they were made: a page that the kernel clears in every
// child tells them.
#ifndef HEAPTAP_ALLOCATOR_SAMPLING_PROBE_SITES_H_
#define HEAPTAP_ALLOCATOR_SAMPLING_PROBE_SITES_H_

#include <atomic>

namespace heaptap {

// Whether the kernel and this process can use the site with the five-byte nop. Any thread, any time.
bool CanUseCallSite();

namespace probe_sites_internal {

// In memory that the kernel clears in every child of a fork.
struct Mark {
  volatile char is_own_process;
  volatile char can_use_call_site;
};
extern std::atomic<const Mark*> mark;  // null: not made yet
const Mark* MakeMark();

}  // namespace probe_sites_internal

// Whether the process is the one in which IsOwnProcess or CanUseCallSite was called first: not a child of it, however
// that was forked. False too if there is no memory to tell. Any thread, any time.
[[gnu::always_inline]] inline bool IsOwnProcess() {
  const probe_sites_internal::Mark* known = probe_sites_internal::mark.load(std::memory_order_acquire);
  if (known == nullptr) [[unlikely]]
    known = probe_sites_internal::MakeMark();
  return known->is_own_process != 0;
}

// In the child of a fork, which has dropped what belongs to its parent: IsOwnProcess() is true from now on.
void BeOwnProcess();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_SAMPLING_PROBE_SITES_H_
