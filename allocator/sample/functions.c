/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inline functions of the header as functions that other languages can call.
 */
#include "heaptap/sample.h"

extern inline bool heaptap_heap_sample_alloc(const char* heap, const void* block, size_t size);
extern inline void heaptap_heap_sample_free(const char* heap, const void* block);
extern inline bool heaptap_sample_alloc(const void* block, size_t size);
extern inline void heaptap_sample_free(const void* block);
extern inline bool heaptap_heap_mark_alloc(const char* heap, const void* block, size_t size);
