// SPDX-License-Identifier: Apache-2.0
//
// How names leave the library.
#ifndef HEAPTAP_ALLOCATOR_SYMBOLS_H_
#define HEAPTAP_ALLOCATOR_SYMBOLS_H_

#define HEAPTAP_EXPORT __attribute__((visibility("default")))
#define HEAPTAP_C_EXPORT extern "C" HEAPTAP_EXPORT
// Another name for a function of the same file.
#define HEAPTAP_ALIAS(name) __attribute__((alias(#name), copy(name)))

#endif  // HEAPTAP_ALLOCATOR_SYMBOLS_H_
