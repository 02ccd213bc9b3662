/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lets programs that were written for jemalloc compile and link with heaptap unchanged. The functions are in
 * heaptap/heaptap.h; the rest of jemalloc's header is here.
 */
#ifndef JEMALLOC_H_
#define JEMALLOC_H_

#include <limits.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <strings.h>

#include "heaptap/heaptap.h"

/* The version of jemalloc whose options, names and size classes heaptap has. */
#define JEMALLOC_VERSION "5.3.1-0-g0000000000000000000000000000000000000000 heaptap"
#define JEMALLOC_VERSION_MAJOR 5
#define JEMALLOC_VERSION_MINOR 3
#define JEMALLOC_VERSION_BUGFIX 1
#define JEMALLOC_VERSION_NREV 0
#define JEMALLOC_VERSION_GID "0000000000000000000000000000000000000000"
#define JEMALLOC_VERSION_GID_IDENT 0000000000000000000000000000000000000000

/* Special values of <i> in "arena.<i>.*" and "stats.arenas.<i>.*". Plain decimal, so that macros can make them part of
 * a string. */
#define MALLCTL_ARENAS_ALL 4096
#define MALLCTL_ARENAS_DESTROYED 4097

/* The same functions with jemalloc's default prefix. */
#ifdef JEMALLOC_NO_DEMANGLE
#define je_aligned_alloc aligned_alloc
#define je_calloc calloc
#define je_dallocx dallocx
#define je_free free
#define je_mallctl mallctl
#define je_mallctlbymib mallctlbymib
#define je_mallctlnametomib mallctlnametomib
#define je_malloc malloc
#define je_malloc_conf malloc_conf
#define je_malloc_message malloc_message
#define je_malloc_stats_print malloc_stats_print
#define je_malloc_usable_size malloc_usable_size
#define je_mallocx mallocx
#define je_memalign memalign
#define je_nallocx nallocx
#define je_posix_memalign posix_memalign
#define je_rallocx rallocx
#define je_realloc realloc
#define je_sallocx sallocx
#define je_sdallocx sdallocx
#define je_valloc valloc
#define je_xallocx xallocx
#endif

/* The types of the hooks with which a program can supply an arena's memory. heaptap's arena accepts no hooks. */
typedef struct extent_hooks_s extent_hooks_t;

typedef void*(extent_alloc_t)(extent_hooks_t* hooks, void* address, size_t size, size_t alignment, bool* zero,
                              bool* commit, unsigned arena);
typedef bool(extent_dalloc_t)(extent_hooks_t* hooks, void* address, size_t size, bool committed, unsigned arena);
typedef void(extent_destroy_t)(extent_hooks_t* hooks, void* address, size_t size, bool committed, unsigned arena);
typedef bool(extent_commit_t)(extent_hooks_t* hooks, void* address, size_t size, size_t offset, size_t length,
                              unsigned arena);
typedef bool(extent_decommit_t)(extent_hooks_t* hooks, void* address, size_t size, size_t offset, size_t length,
                                unsigned arena);
typedef bool(extent_purge_t)(extent_hooks_t* hooks, void* address, size_t size, size_t offset, size_t length,
                             unsigned arena);
typedef bool(extent_split_t)(extent_hooks_t* hooks, void* address, size_t size, size_t size_a, size_t size_b,
                             bool committed, unsigned arena);
typedef bool(extent_merge_t)(extent_hooks_t* hooks, void* address_a, size_t size_a, void* address_b, size_t size_b,
                             bool committed, unsigned arena);

struct extent_hooks_s {
  extent_alloc_t* alloc;
  extent_dalloc_t* dalloc;
  extent_destroy_t* destroy;
  extent_commit_t* commit;
  extent_decommit_t* decommit;
  extent_purge_t* purge_lazy;
  extent_purge_t* purge_forced;
  extent_split_t* split;
  extent_merge_t* merge;
};

#endif /* JEMALLOC_H_ */
