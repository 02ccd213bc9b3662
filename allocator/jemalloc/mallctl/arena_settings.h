// SPDX-License-Identifier: Apache-2.0
//
// What a program can set for each arena and read back. Only the dirty decay time of arena 0 has an effect: memory that
// other arenas free becomes arena 0's.
//
// Any thread, after StartProcess. Zero-initialised state is valid: nothing is set.
#ifndef HEAPTAP_ALLOCATOR_JEMALLOC_MALLCTL_ARENA_SETTINGS_H_
#define HEAPTAP_ALLOCATOR_JEMALLOC_MALLCTL_ARENA_SETTINGS_H_

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "allocator/core/slab.h"
#include "allocator/jemalloc/mallctl/tree.h"

namespace heaptap {

// Decay times in milliseconds. kNewArenas: the decay times of arenas that will be made.
ssize_t ReadDirtyDecay(size_t arena);
void SetDirtyDecay(size_t arena, ssize_t value);
ssize_t ReadMuzzyDecay(size_t arena);
inline constexpr size_t kNewArenas = SIZE_MAX;

// Gives a new explicit arena its first name and the decay times of new arenas.
void BeginArenaSettings(ArenaIndex arena);

// Reads the decay time of an arena, or of kNewArenas, and sets it.
int ExchangeDirtyDecay(const Request& request, size_t arena);
int ExchangeMuzzyDecay(const Request& request, size_t arena);

// Exchanges the name of an arena.
int ExchangeArenaName(const Request& request, size_t arena);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_JEMALLOC_MALLCTL_ARENA_SETTINGS_H_
