/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program may call when it knows that its allocator is heaptap: jemalloc's functions by jemalloc's names, beside
 * those of libc (malloc_usable_size and the like are in <malloc.h>), and the control block of contract.h.
 *
 * Any thread may call any of them at any time. Sizes are bytes; usable sizes are jemalloc's size classes.
 *
 * Programs written for jemalloc need not know: <jemalloc/jemalloc.h> of the same folder is for them.
 */
#ifndef HEAPTAP_HEAPTAP_H_
#define HEAPTAP_HEAPTAP_H_

#include <stddef.h>

#include "heaptap/contract.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Flags of the extended functions, to be combined with |. Alignments are powers of two. Thread caches and arenas are
 * accepted and have no meaning: there is one arena.
 */
#define MALLOCX_LG_ALIGN(lg_alignment) ((int)(lg_alignment))
#define MALLOCX_ALIGN(alignment) ((int)(__builtin_ffsll((long long)(alignment)) - 1))
#define MALLOCX_ZERO 0x40
#define MALLOCX_TCACHE(cache) ((int)(((cache) + 2) << 8))
#define MALLOCX_TCACHE_NONE MALLOCX_TCACHE(-1)
#define MALLOCX_ARENA(arena) ((((int)(arena)) + 1) << 20)

/* A block of at least `size` bytes. NULL: out of memory. */
void* mallocx(size_t size, int flags) __attribute__((malloc, alloc_size(1)));

/* realloc with flags. MALLOCX_ZERO: what lies behind the block's old usable size reads as zero. NULL: out of memory,
 * and the block is as it was. */
void* rallocx(void* pointer, size_t size, int flags) __attribute__((alloc_size(2)));

/* Tries to make the block at least `size`, and up to `size` + `extra`, bytes long where it lies; returns its usable
 * size, which is less than `size` if that failed. Blocks up to 32 KiB keep their size. */
size_t xallocx(void* pointer, size_t size, size_t extra, int flags);

/* The usable size of a block, and that which a block would have; 0 if there can be none. */
size_t sallocx(const void* pointer, int flags) __attribute__((pure));
size_t nallocx(size_t size, int flags) __attribute__((pure));

/* free. */
void dallocx(void* pointer, int flags);
void sdallocx(void* pointer, size_t size, int flags);

/*
 * Reads the value `name` into *old_value, of *old_length bytes, and sets it from new_value, of new_length bytes, where
 * these are not NULL. Returns 0 or an errno value: ENOENT no such name, EPERM not to be read or written, EINVAL a wrong
 * length or value, EAGAIN out of memory, EFAULT the side effect failed (a dump: no heaptap follows the process).
 */
int mallctl(const char* name, void* old_value, size_t* old_length, void* new_value, size_t new_length);

/* The same in two steps, for names that are used often: `mib` has room for *mib_length numbers. */
int mallctlnametomib(const char* name, size_t* mib, size_t* mib_length);
int mallctlbymib(const size_t* mib, size_t mib_length, void* old_value, size_t* old_length, void* new_value,
                 size_t new_length);

/* Writes the allocator's figures through write_cb, or to stderr if that is NULL. `opts`: letters that leave parts out,
 * and J for JSON; may be NULL. */
void malloc_stats_print(void (*write_cb)(void*, const char*), void* opaque, const char* opts);

/* Options, in the grammar of the variable MALLOC_CONF, that a program may define for itself. */
extern const char* malloc_conf;

/* Where messages go, if a program sets it: stderr otherwise. */
extern void (*malloc_message)(void* opaque, const char* s);

/* The allocator's control block, to be read. */
extern struct heaptap_control heaptap_control;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* HEAPTAP_HEAPTAP_H_ */
