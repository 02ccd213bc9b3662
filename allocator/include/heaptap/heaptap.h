/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heaptap's interface to programs: jemalloc's functions under jemalloc's names, in addition to those of libc
 * (malloc_usable_size and others are in <malloc.h>), and the control block of contract.h.
 *
 * Any thread may call any function at any time. Sizes are bytes; usable sizes are jemalloc's size classes.
 *
 * Programs written for jemalloc can include <jemalloc/jemalloc.h>, which comes with this header.
 */
#ifndef HEAPTAP_HEAPTAP_H_
#define HEAPTAP_HEAPTAP_H_

#include <stddef.h>

#include "heaptap/contract.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Flags of the extended functions, combined with |. Alignments are powers of two. Thread caches are accepted
 * and ignored. Arenas are made by mallctl("arenas.create").
 */
#define MALLOCX_LG_ALIGN(lg_alignment) ((int)(lg_alignment))
#define MALLOCX_ALIGN(alignment) ((int)(__builtin_ffsll((long long)(alignment)) - 1))
#define MALLOCX_ZERO 0x40
#define MALLOCX_TCACHE(cache) ((int)(((cache) + 2) << 8))
#define MALLOCX_TCACHE_NONE MALLOCX_TCACHE(-1)
#define MALLOCX_ARENA(arena) ((((int)(arena)) + 1) << 20)

/* A block of at least `size` bytes. NULL: out of memory. */
void* mallocx(size_t size, int flags) __attribute__((malloc, alloc_size(1)));

/* realloc with flags. MALLOCX_ZERO: the memory beyond the old usable size reads as zero. NULL: out of memory, and the
 * block is unchanged. */
void* rallocx(void* pointer, size_t size, int flags) __attribute__((alloc_size(2)));

/* Tries to resize the block in place to at least `size` and at most `size` + `extra` bytes. Returns its usable size,
 * which is less than `size` if that failed. Blocks of up to 32 KiB keep their size. */
size_t xallocx(void* pointer, size_t size, size_t extra, int flags);

/* The usable size of a block, and the usable size that mallocx would return; 0 if the size is too large. */
size_t sallocx(const void* pointer, int flags) __attribute__((pure));
size_t nallocx(size_t size, int flags) __attribute__((pure));

/* free. */
void dallocx(void* pointer, int flags);
void sdallocx(void* pointer, size_t size, int flags);

/*
 * Reads the value `name` into *old_value, of *old_length bytes, if old_value is not NULL; sets it from new_value, of
 * new_length bytes, if new_value is not NULL. Returns 0 or an errno value:
 *   ENOENT  there is no such name
 *   EPERM   the value cannot be read, or cannot be written
 *   EINVAL  wrong length or value
 *   EAGAIN  out of memory, or the collector did not answer in time
 *   EFAULT  the action failed (a dump: no heaptap collector records the process)
 */
int mallctl(const char* name, void* old_value, size_t* old_length, void* new_value, size_t new_length);

/* mallctl in two steps, for names that are used often. `mib` has room for *mib_length numbers. */
int mallctlnametomib(const char* name, size_t* mib, size_t* mib_length);
int mallctlbymib(const size_t* mib, size_t mib_length, void* old_value, size_t* old_length, void* new_value,
                 size_t new_length);

/* Passes the allocator's statistics to write_cb, or writes them to stderr if write_cb is NULL. `opts`: letters that
 * omit parts, and J for JSON; may be NULL. */
void malloc_stats_print(void (*write_cb)(void*, const char*), void* opaque, const char* opts);

/* A program may define this to set options, in the grammar of the variable MALLOC_CONF. */
extern const char* malloc_conf;

/* A program may set this to receive messages, which otherwise go to stderr. */
extern void (*malloc_message)(void* opaque, const char* s);

/* The allocator's control block. Read only. */
extern struct heaptap_control heaptap_control;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* HEAPTAP_HEAPTAP_H_ */
