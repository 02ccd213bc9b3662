// SPDX-License-Identifier: Apache-2.0
//
// The host: the allocator that a guest passes calls on to. For each name it is the next definition after the guest's
// own, as dlsym(RTLD_NEXT) finds it. A fast path jumps through `host`.
//
// Until the host is found, the entries lead to functions that find it first. Finding it may itself allocate; these few
// blocks come from the guest's range.
//
// Any thread, any time. Constant after FindHost.
#ifndef HEAPTAP_ALLOCATOR_GUEST_HOST_H_
#define HEAPTAP_ALLOCATOR_GUEST_HOST_H_

#include <stddef.h>

#include <new>

namespace heaptap {

// FUNCTION(result, entry, name, parameters, arguments). The functions that libc needs while the host is being found.
#define HEAPTAP_HOST_EARLY_FUNCTIONS(FUNCTION)                                  \
  FUNCTION(void*, malloc, "malloc", (size_t size), (size))                      \
  FUNCTION(void, free, "free", (void* pointer), (pointer))                      \
  FUNCTION(void*, calloc, "calloc", (size_t count, size_t size), (count, size)) \
  FUNCTION(void*, realloc, "realloc", (void* pointer, size_t size), (pointer, size))

// The other functions that every host has, with libc's help.
#define HEAPTAP_HOST_C_FUNCTIONS(FUNCTION)                                                                          \
  FUNCTION(void*, reallocarray, "reallocarray", (void* pointer, size_t count, size_t size), (pointer, count, size)) \
  FUNCTION(int, posix_memalign, "posix_memalign", (void** result, size_t alignment, size_t size),                   \
           (result, alignment, size))                                                                               \
  FUNCTION(void*, aligned_alloc, "aligned_alloc", (size_t alignment, size_t size), (alignment, size))               \
  FUNCTION(void*, memalign, "memalign", (size_t alignment, size_t size), (alignment, size))                         \
  FUNCTION(void*, valloc, "valloc", (size_t size), (size))                                                          \
  FUNCTION(void*, pvalloc, "pvalloc", (size_t size), (size))                                                        \
  FUNCTION(size_t, malloc_usable_size, "malloc_usable_size", (void* pointer), (pointer))                            \
  FUNCTION(void, libc_free, "__libc_free", (void* pointer), (pointer))                                              \
  FUNCTION(void*, libc_realloc, "__libc_realloc", (void* pointer, size_t size), (pointer, size))

// The functions that only some hosts have, in lists by what they do with the block `pointer`. The guest hides its own
// function if the host has none (names.h). This list: the functions that free the block.
#define HEAPTAP_HOST_FREE_FUNCTIONS(FUNCTION)                                                                         \
  FUNCTION(void, cfree, "cfree", (void* pointer), (pointer))                                                          \
  FUNCTION(void, vfree, "vfree", (void* pointer), (pointer))                                                          \
  FUNCTION(void, __libc_cfree, "__libc_cfree", (void* pointer), (pointer))                                            \
  FUNCTION(void, free_sized, "free_sized", (void* pointer, size_t size), (pointer, size))                             \
  FUNCTION(void, free_aligned_sized, "free_aligned_sized", (void* pointer, size_t alignment, size_t size),            \
           (pointer, alignment, size))                                                                                \
  FUNCTION(void, dallocx, "dallocx", (void* pointer, int flags), (pointer, flags))                                    \
  FUNCTION(void, sdallocx, "sdallocx", (void* pointer, size_t size, int flags), (pointer, size, flags))               \
  FUNCTION(void, tc_free, "tc_free", (void* pointer), (pointer))                                                      \
  FUNCTION(void, tc_free_sized, "tc_free_sized", (void* pointer, size_t size), (pointer, size))                       \
  FUNCTION(void, tc_cfree, "tc_cfree", (void* pointer), (pointer))                                                    \
  FUNCTION(void, tc_delete, "tc_delete", (void* pointer), (pointer))                                                  \
  FUNCTION(void, tc_deletearray, "tc_deletearray", (void* pointer), (pointer))                                        \
  FUNCTION(void, tc_delete_sized, "tc_delete_sized", (void* pointer, size_t size), (pointer, size))                   \
  FUNCTION(void, tc_deletearray_sized, "tc_deletearray_sized", (void* pointer, size_t size), (pointer, size))         \
  FUNCTION(void, tc_delete_nothrow, "tc_delete_nothrow", (void* pointer, const std::nothrow_t& nothrow),              \
           (pointer, nothrow))                                                                                        \
  FUNCTION(void, tc_deletearray_nothrow, "tc_deletearray_nothrow", (void* pointer, const std::nothrow_t& nothrow),    \
           (pointer, nothrow))                                                                                        \
  FUNCTION(void, tc_delete_aligned, "tc_delete_aligned", (void* pointer, std::align_val_t alignment),                 \
           (pointer, alignment))                                                                                      \
  FUNCTION(void, tc_deletearray_aligned, "tc_deletearray_aligned", (void* pointer, std::align_val_t alignment),       \
           (pointer, alignment))                                                                                      \
  FUNCTION(void, tc_delete_sized_aligned, "tc_delete_sized_aligned",                                                  \
           (void* pointer, size_t size, std::align_val_t alignment), (pointer, size, alignment))                      \
  FUNCTION(void, tc_deletearray_sized_aligned, "tc_deletearray_sized_aligned",                                        \
           (void* pointer, size_t size, std::align_val_t alignment), (pointer, size, alignment))                      \
  FUNCTION(void, tc_delete_aligned_nothrow, "tc_delete_aligned_nothrow",                                              \
           (void* pointer, std::align_val_t alignment, const std::nothrow_t& nothrow), (pointer, alignment, nothrow)) \
  FUNCTION(void, tc_deletearray_aligned_nothrow, "tc_deletearray_aligned_nothrow",                                    \
           (void* pointer, std::align_val_t alignment, const std::nothrow_t& nothrow), (pointer, alignment, nothrow)) \
  FUNCTION(void, mi_free, "mi_free", (void* pointer), (pointer))                                                      \
  FUNCTION(void, mi_cfree, "mi_cfree", (void* pointer), (pointer))                                                    \
  FUNCTION(void, mi_free_size, "mi_free_size", (void* pointer, size_t size), (pointer, size))                         \
  FUNCTION(void, mi_free_aligned, "mi_free_aligned", (void* pointer, size_t alignment), (pointer, alignment))         \
  FUNCTION(void, mi_free_size_aligned, "mi_free_size_aligned", (void* pointer, size_t size, size_t alignment),        \
           (pointer, size, alignment))

// The functions that return the size of the block.
#define HEAPTAP_HOST_SIZE_FUNCTIONS(FUNCTION)                                                                   \
  FUNCTION(size_t, malloc_size, "malloc_size", (const void* pointer), (pointer))                                \
  FUNCTION(size_t, sallocx, "sallocx", (const void* pointer, int flags), (pointer, flags))                      \
  FUNCTION(size_t, tc_malloc_size, "tc_malloc_size", (void* pointer), (pointer))                                \
  FUNCTION(size_t, MallocExtension_GetAllocatedSize, "MallocExtension_GetAllocatedSize", (const void* pointer), \
           (pointer))                                                                                           \
  FUNCTION(size_t, mi_usable_size, "mi_usable_size", (const void* pointer), (pointer))                          \
  FUNCTION(size_t, mi_malloc_size, "mi_malloc_size", (const void* pointer), (pointer))                          \
  FUNCTION(size_t, mi_malloc_usable_size, "mi_malloc_usable_size", (const void* pointer), (pointer))

// The functions that resize the block, all of them mimalloc's. They are rare, so they get a block of the host in place
// of a sample.
#define HEAPTAP_HOST_RESIZE_FUNCTIONS(FUNCTION)                                                                        \
  FUNCTION(void*, reallocf, "reallocf", (void* pointer, size_t size), (pointer, size))                                 \
  FUNCTION(void*, mi_reallocf, "mi_reallocf", (void* pointer, size_t size), (pointer, size))                           \
  FUNCTION(void*, mi_rezalloc, "mi_rezalloc", (void* pointer, size_t size), (pointer, size))                           \
  FUNCTION(void*, mi_new_realloc, "mi_new_realloc", (void* pointer, size_t size), (pointer, size))                     \
  FUNCTION(void*, mi_reallocn, "mi_reallocn", (void* pointer, size_t count, size_t size), (pointer, count, size))      \
  FUNCTION(void*, mi_reallocarray, "mi_reallocarray", (void* pointer, size_t count, size_t size),                      \
           (pointer, count, size))                                                                                     \
  FUNCTION(void*, mi_recalloc, "mi_recalloc", (void* pointer, size_t count, size_t size), (pointer, count, size))      \
  FUNCTION(void*, mi_new_reallocn, "mi_new_reallocn", (void* pointer, size_t count, size_t size),                      \
           (pointer, count, size))                                                                                     \
  FUNCTION(void*, mi_realloc_aligned, "mi_realloc_aligned", (void* pointer, size_t size, size_t alignment),            \
           (pointer, size, alignment))                                                                                 \
  FUNCTION(void*, mi_rezalloc_aligned, "mi_rezalloc_aligned", (void* pointer, size_t size, size_t alignment),          \
           (pointer, size, alignment))                                                                                 \
  FUNCTION(void*, mi_recalloc_aligned, "mi_recalloc_aligned",                                                          \
           (void* pointer, size_t count, size_t size, size_t alignment), (pointer, count, size, alignment))            \
  FUNCTION(void*, mi_heap_realloc, "mi_heap_realloc", (void* heap, void* pointer, size_t size), (heap, pointer, size)) \
  FUNCTION(void*, mi_heap_reallocf, "mi_heap_reallocf", (void* heap, void* pointer, size_t size),                      \
           (heap, pointer, size))                                                                                      \
  FUNCTION(void*, mi_heap_rezalloc, "mi_heap_rezalloc", (void* heap, void* pointer, size_t size),                      \
           (heap, pointer, size))                                                                                      \
  FUNCTION(void*, mi_heap_reallocn, "mi_heap_reallocn", (void* heap, void* pointer, size_t count, size_t size),        \
           (heap, pointer, count, size))                                                                               \
  FUNCTION(void*, mi_heap_recalloc, "mi_heap_recalloc", (void* heap, void* pointer, size_t count, size_t size),        \
           (heap, pointer, count, size))                                                                               \
  FUNCTION(void*, mi_realloc_aligned_at, "mi_realloc_aligned_at",                                                      \
           (void* pointer, size_t size, size_t alignment, size_t offset), (pointer, size, alignment, offset))          \
  FUNCTION(void*, mi_rezalloc_aligned_at, "mi_rezalloc_aligned_at",                                                    \
           (void* pointer, size_t size, size_t alignment, size_t offset), (pointer, size, alignment, offset))          \
  FUNCTION(void*, mi_recalloc_aligned_at, "mi_recalloc_aligned_at",                                                    \
           (void* pointer, size_t count, size_t size, size_t alignment, size_t offset),                                \
           (pointer, count, size, alignment, offset))                                                                  \
  FUNCTION(void*, mi_aligned_recalloc, "mi_aligned_recalloc",                                                          \
           (void* pointer, size_t count, size_t size, size_t alignment), (pointer, count, size, alignment))            \
  FUNCTION(void*, mi_aligned_offset_recalloc, "mi_aligned_offset_recalloc",                                            \
           (void* pointer, size_t count, size_t size, size_t alignment, size_t offset),                                \
           (pointer, count, size, alignment, offset))                                                                  \
  FUNCTION(void*, mi_heap_realloc_aligned, "mi_heap_realloc_aligned",                                                  \
           (void* heap, void* pointer, size_t size, size_t alignment), (heap, pointer, size, alignment))               \
  FUNCTION(void*, mi_heap_realloc_aligned_at, "mi_heap_realloc_aligned_at",                                            \
           (void* heap, void* pointer, size_t size, size_t alignment, size_t offset),                                  \
           (heap, pointer, size, alignment, offset))                                                                   \
  FUNCTION(void*, mi_heap_rezalloc_aligned, "mi_heap_rezalloc_aligned",                                                \
           (void* heap, void* pointer, size_t size, size_t alignment), (heap, pointer, size, alignment))               \
  FUNCTION(void*, mi_heap_rezalloc_aligned_at, "mi_heap_rezalloc_aligned_at",                                          \
           (void* heap, void* pointer, size_t size, size_t alignment, size_t offset),                                  \
           (heap, pointer, size, alignment, offset))                                                                   \
  FUNCTION(void*, mi_heap_recalloc_aligned, "mi_heap_recalloc_aligned",                                                \
           (void* heap, void* pointer, size_t count, size_t size, size_t alignment),                                   \
           (heap, pointer, count, size, alignment))                                                                    \
  FUNCTION(void*, mi_heap_recalloc_aligned_at, "mi_heap_recalloc_aligned_at",                                          \
           (void* heap, void* pointer, size_t count, size_t size, size_t alignment, size_t offset),                    \
           (heap, pointer, count, size, alignment, offset))

// All functions that only some hosts have, except operators new.
#define HEAPTAP_HOST_EXTENDED_FUNCTIONS(FUNCTION)                                                                     \
  HEAPTAP_HOST_FREE_FUNCTIONS(FUNCTION)                                                                               \
  HEAPTAP_HOST_SIZE_FUNCTIONS(FUNCTION)                                                                               \
  HEAPTAP_HOST_RESIZE_FUNCTIONS(FUNCTION)                                                                             \
  FUNCTION(void*, mallocx, "mallocx", (size_t size, int flags), (size, flags))                                        \
  FUNCTION(void*, rallocx, "rallocx", (void* pointer, size_t size, int flags), (pointer, size, flags))                \
  FUNCTION(size_t, xallocx, "xallocx", (void* pointer, size_t size, size_t extra, int flags),                         \
           (pointer, size, extra, flags))                                                                             \
  FUNCTION(void*, tc_malloc, "tc_malloc", (size_t size), (size))                                                      \
  FUNCTION(void*, tc_calloc, "tc_calloc", (size_t count, size_t size), (count, size))                                 \
  FUNCTION(void*, tc_realloc, "tc_realloc", (void* pointer, size_t size), (pointer, size))                            \
  FUNCTION(void*, tc_memalign, "tc_memalign", (size_t alignment, size_t size), (alignment, size))                     \
  FUNCTION(int, tc_posix_memalign, "tc_posix_memalign", (void** result, size_t alignment, size_t size),               \
           (result, alignment, size))                                                                                 \
  FUNCTION(void*, mi_realloc, "mi_realloc", (void* pointer, size_t size), (pointer, size))                            \
  FUNCTION(void*, mi_expand, "mi_expand", (void* pointer, size_t size), (pointer, size))                              \
  FUNCTION(int, reallocarr, "reallocarr", (void* place, size_t count, size_t size), (place, count, size))             \
  FUNCTION(int, mi_reallocarr, "mi_reallocarr", (void* place, size_t count, size_t size), (place, count, size))       \
  FUNCTION(void, delete_plain, "_ZdlPv", (void* pointer), (pointer))                                                  \
  FUNCTION(void, delete_array, "_ZdaPv", (void* pointer), (pointer))                                                  \
  FUNCTION(void, delete_sized, "_ZdlPvm", (void* pointer, size_t size), (pointer, size))                              \
  FUNCTION(void, delete_array_sized, "_ZdaPvm", (void* pointer, size_t size), (pointer, size))                        \
  FUNCTION(void, delete_nothrow, "_ZdlPvRKSt9nothrow_t", (void* pointer, const std::nothrow_t& nothrow),              \
           (pointer, nothrow))                                                                                        \
  FUNCTION(void, delete_array_nothrow, "_ZdaPvRKSt9nothrow_t", (void* pointer, const std::nothrow_t& nothrow),        \
           (pointer, nothrow))                                                                                        \
  FUNCTION(void, delete_aligned, "_ZdlPvSt11align_val_t", (void* pointer, std::align_val_t alignment),                \
           (pointer, alignment))                                                                                      \
  FUNCTION(void, delete_array_aligned, "_ZdaPvSt11align_val_t", (void* pointer, std::align_val_t alignment),          \
           (pointer, alignment))                                                                                      \
  FUNCTION(void, delete_aligned_nothrow, "_ZdlPvSt11align_val_tRKSt9nothrow_t",                                       \
           (void* pointer, std::align_val_t alignment, const std::nothrow_t& nothrow), (pointer, alignment, nothrow)) \
  FUNCTION(void, delete_array_aligned_nothrow, "_ZdaPvSt11align_val_tRKSt9nothrow_t",                                 \
           (void* pointer, std::align_val_t alignment, const std::nothrow_t& nothrow), (pointer, alignment, nothrow)) \
  FUNCTION(void, delete_sized_aligned, "_ZdlPvmSt11align_val_t",                                                      \
           (void* pointer, size_t size, std::align_val_t alignment), (pointer, size, alignment))                      \
  FUNCTION(void, delete_array_sized_aligned, "_ZdaPvmSt11align_val_t",                                                \
           (void* pointer, size_t size, std::align_val_t alignment), (pointer, size, alignment))

// Operators new, which may lead back to the guest's malloc (new_delete.cc). The first parameter is the size.
#define HEAPTAP_HOST_NEW_FUNCTIONS(FUNCTION)                                                                         \
  FUNCTION(void*, new_plain, "_Znwm", (size_t size), (size))                                                         \
  FUNCTION(void*, new_array, "_Znam", (size_t size), (size))                                                         \
  FUNCTION(void*, new_nothrow, "_ZnwmRKSt9nothrow_t", (size_t size, const std::nothrow_t& nothrow), (size, nothrow)) \
  FUNCTION(void*, new_array_nothrow, "_ZnamRKSt9nothrow_t", (size_t size, const std::nothrow_t& nothrow),            \
           (size, nothrow))                                                                                          \
  FUNCTION(void*, new_aligned, "_ZnwmSt11align_val_t", (size_t size, std::align_val_t alignment), (size, alignment)) \
  FUNCTION(void*, new_array_aligned, "_ZnamSt11align_val_t", (size_t size, std::align_val_t alignment),              \
           (size, alignment))                                                                                        \
  FUNCTION(void*, new_aligned_nothrow, "_ZnwmSt11align_val_tRKSt9nothrow_t",                                         \
           (size_t size, std::align_val_t alignment, const std::nothrow_t& nothrow), (size, alignment, nothrow))     \
  FUNCTION(void*, new_array_aligned_nothrow, "_ZnamSt11align_val_tRKSt9nothrow_t",                                   \
           (size_t size, std::align_val_t alignment, const std::nothrow_t& nothrow), (size, alignment, nothrow))

#define HEAPTAP_HOST_FUNCTIONS(FUNCTION)    \
  HEAPTAP_HOST_EARLY_FUNCTIONS(FUNCTION)    \
  HEAPTAP_HOST_C_FUNCTIONS(FUNCTION)        \
  HEAPTAP_HOST_EXTENDED_FUNCTIONS(FUNCTION) \
  HEAPTAP_HOST_NEW_FUNCTIONS(FUNCTION)

struct Host {
#define HEAPTAP_ENTRY(result, entry, name, parameters, arguments) result(*entry) parameters;
  HEAPTAP_HOST_FUNCTIONS(HEAPTAP_ENTRY)
#undef HEAPTAP_ENTRY
};
extern constinit Host host __attribute__((visibility("hidden")));

// What is known about the host besides its functions.
struct HostFacts {
  bool is_glibc;
  bool is_musl;
  bool has_usable_size;            // its malloc_usable_size comes from the same library as its malloc
  bool has_exact_size;             // its malloc_usable_size is the requested size, as musl's has been since 1.2.1
  size_t (*nallocx)(size_t, int);  // nullptr: it has none
  const void* malloc;              // an address in its library
};
extern constinit HostFacts host_facts;

// Fills in `host` and `host_facts`. Later calls return at once. errno is kept.
void FindHost();

// A function of this name in the library that has the host's malloc. nullptr: there is none.
void* FindInHost(const char* name);

// Whether the host has this name. REQUIRES: FindHost has returned, and the name is one of the lists above.
bool HasHostFunction(const char* name);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_GUEST_HOST_H_
