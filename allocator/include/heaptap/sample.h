/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For allocators, pools and arenas whose blocks should appear in heaptap's profiles: tell heaptap of each block that is
 * handed out and taken back. It picks statistical samples by the same law as libheaptap.so: a block of s bytes is a
 * sample with probability 1 - exp(-s / R). Link libheaptap-sample.a.
 *
 *   void* PoolTake(struct Pool* pool) {                   void PoolGive(struct Pool* pool, void* block) {
 *     void* block = ...;                                    heaptap_heap_sample_free("my pool", block);
 *     heaptap_heap_sample_alloc("my pool", block, size);    ...
 *     return block;                                       }
 *   }
 *
 * `heap` is the name under which the blocks appear in a profile: heap:"my pool". NULL: the blocks are listed under the
 * threads that allocate. At most 31 characters count. The heap must be the same when a block is taken back.
 *
 * Nothing is sampled unless a collector listens. A block that is not a sample costs a subtraction and a branch when it
 * is handed out, and a lookup in a table of counts when it is taken back. Any thread, any time, in signal handlers too.
 * The functions allocate nothing and take no lock, keep errno, and may be called with the allocator's own locks held
 * and from malloc itself.
 */
#ifndef HEAPTAP_SAMPLE_H_
#define HEAPTAP_SAMPLE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- the library's part, which no other code may use --- */

/* The bytes until the thread checks whether there is a sample. */
extern __thread uint64_t heaptap_sample_left __attribute__((tls_model("initial-exec"), visibility("hidden")));
/* The number of samples that the library remembers, by a hash of their addresses. */
#define HEAPTAP_SAMPLE_COUNTS 4096
extern uint32_t heaptap_sample_counts[HEAPTAP_SAMPLE_COUNTS] __attribute__((visibility("hidden")));
/* NULL: the block is not a sample. */
const void* heaptap_sample_alloc_slow(const char* heap, const void* block, size_t size);
const void* heaptap_sample_mark_slow(const char* heap, const void* block, size_t size);
void heaptap_sample_free_slow(const char* heap, const void* block);

/* --- for each block --- */

/* The block has been handed out, and has `size` usable bytes. True: it is a sample, which the library remembers. */
inline bool heaptap_heap_sample_alloc(const char* heap, const void* block, size_t size) {
  return __builtin_expect(__builtin_sub_overflow(heaptap_sample_left, size, &heaptap_sample_left), 0) &&
         heaptap_sample_alloc_slow(heap, block, size) != NULL;
}

/* The block is about to be taken back; its memory is not yet reused. To be called for every block, or at least for each
 * sample. */
inline void heaptap_heap_sample_free(const char* heap, const void* block) {
  const uint64_t hash = (uint64_t)(uintptr_t)block * 0x9e3779b97f4a7c15u >> 52;
  if (__builtin_expect(__atomic_load_n(&heaptap_sample_counts[hash], __ATOMIC_RELAXED) != 0, 0)) {
    heaptap_sample_free_slow(heap, block);
  }
}

/* These two are for blocks that belong to no named heap. */
inline bool heaptap_sample_alloc(const void* block, size_t size) {
  return heaptap_heap_sample_alloc(NULL, block, size);
}
inline void heaptap_sample_free(const void* block) { heaptap_heap_sample_free(NULL, block); }

/* --- for an arena that is emptied at once --- */

/* All blocks in the `size` bytes from `begin` on are about to be taken back. Costs a look at all samples that the
 * library remembers. */
void heaptap_heap_sample_free_range(const char* heap, const void* begin, size_t size);

/* --- for an allocator that has a bit to spare for each block --- */

/* Like heaptap_heap_sample_alloc, but the library does not remember the sample. If the function returns true, the
 * allocator remembers the sample, and calls heaptap_heap_mark_free when it takes this block back, and for no other
 * block. */
inline bool heaptap_heap_mark_alloc(const char* heap, const void* block, size_t size) {
  return __builtin_expect(__builtin_sub_overflow(heaptap_sample_left, size, &heaptap_sample_left), 0) &&
         heaptap_sample_mark_slow(heap, block, size) != NULL;
}
void heaptap_heap_mark_free(const char* heap, const void* block);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* HEAPTAP_SAMPLE_H_ */
