// SPDX-License-Identifier: Apache-2.0
#ifndef HEAPTAP_ALLOCATOR_GUEST_LEAK_CHECKER_H_
#define HEAPTAP_ALLOCATOR_GUEST_LEAK_CHECKER_H_

namespace heaptap {

// Tells LeakSanitizer, if it is the host, of the guest's range. LeakSanitizer looks for pointers in its own blocks, and
// would take a block to which only a sample points for a leak. Does nothing over other hosts. Called once, by the
// library's constructor, after StartGuest: the sanitizer starts with its first block.
void TellLeakChecker();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_GUEST_LEAK_CHECKER_H_
