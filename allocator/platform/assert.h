// SPDX-License-Identifier: Apache-2.0
//
// Preconditions as code: what a header says after REQUIRES. Release builds do not evaluate the condition.
#ifndef HEAPTAP_ALLOCATOR_PLATFORM_ASSERT_H_
#define HEAPTAP_ALLOCATOR_PLATFORM_ASSERT_H_

#ifdef HEAPTAP_DEBUG
#define HEAPTAP_ASSERT(condition) ((condition) ? (void)0 : __builtin_trap())
#else
#define HEAPTAP_ASSERT(condition) ((void)0)
#endif

#endif  // HEAPTAP_ALLOCATOR_PLATFORM_ASSERT_H_
