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

namespace heaptap {

// Whether the kernel and this process can use the site with the five-byte nop. Any thread, any time.
bool CanUseCallSite();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_SAMPLING_PROBE_SITES_H_
