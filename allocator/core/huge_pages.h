// SPDX-License-Identifier: Apache-2.0
//
// Whether the kernel may back memory with huge pages.
//
// Any thread, any time after StartProcess.
#ifndef HEAPTAP_ALLOCATOR_CORE_HUGE_PAGES_H_
#define HEAPTAP_ALLOCATOR_CORE_HUGE_PAGES_H_

#include <stddef.h>

namespace heaptap {

// Tells the kernel whether to back new memory with huge pages, as the option thp says. thp:default forbids them, unless
// `kernel_may_decide`.
void AdviseHugePages(void* address, size_t size, bool kernel_may_decide);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_HUGE_PAGES_H_
