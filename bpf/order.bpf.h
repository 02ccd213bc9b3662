/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * The order of loads and stores of a word that programs on other CPUs use at the same time.
 *
 * x86 keeps the order, so only the compiler must not change it. On other machines an atomic operation whose result is
 * used is a full barrier. eBPF has no cheaper one that all supported kernels know.
 */
#ifndef HEAPTAP_ORDER_BPF_H_
#define HEAPTAP_ORDER_BPF_H_

#include "bpf/kernel.h"

/* A program that sees the value by load_acquire sees all that this one has stored before. */
static __always_inline void store_release(__u64* word, __u64 value) {
#ifdef __TARGET_ARCH_x86
  asm volatile("" ::: "memory");
  *(volatile __u64*)word = value;
#else
  __sync_lock_test_and_set(word, value);
#endif
}

static __always_inline __u64 load_acquire(__u64* word) {
#ifdef __TARGET_ARCH_x86
  __u64 value = *(volatile __u64*)word;
  asm volatile("" ::: "memory");
  return value;
#else
  return __sync_fetch_and_add(word, 0);
#endif
}

#endif /* HEAPTAP_ORDER_BPF_H_ */
