// SPDX-License-Identifier: Apache-2.0
//
// arena.<i>.*: one arena, or all of them.
#include "allocator/core/arena.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "allocator/core/allocate.h"
#include "allocator/core/arena_life.h"
#include "allocator/core/slab.h"
#include "allocator/jemalloc/mallctl/arena_settings.h"
#include "allocator/jemalloc/mallctl/tree.h"
#include "allocator/jemalloc/snapshot.h"
#include "allocator/process/process.h"

namespace heaptap {
namespace {

// heaptap never calls sbrk.
constexpr const char* kDss = "disabled";
constexpr const char* kDssChoices[] = {kDss, "primary", "secondary"};

bool IsArena(size_t index) { return index <= ArenaCount() || index == kAllArenas || index == kDestroyedArenas; }

// The one arena that the request names. nullptr: it names several, or one that does not exist.
Arena* ArenaOfRequest(const Request& request) { return FindArena(request.mib[1]); }

int Initialized(const Request& request) {
  const size_t arena = ArenaIndexOf(request.mib[1]);
  if (arena == kAllArenas) return request.ReadOnly(true);
  return request.ReadOnly(arena == kDestroyedArenas ? HasDestroyedArenas() : FindArena(arena) != nullptr);
}

// All arenas share the free memory, so a purge of one arena purges all of them.
int Purge(const Request& request) {
  int error = request.RefuseBoth();
  if (error == 0) Trim();
  return error;
}

int Reset(const Request& request) {
  int error = request.RefuseBoth();
  if (error != 0) return error;
  Arena* arena = ArenaOfRequest(request);
  return arena != nullptr && DiscardBlocks(*arena, false) ? 0 : EFAULT;
}

int Destroy(const Request& request) {
  int error = request.RefuseBoth();
  if (error != 0) return error;
  Arena* arena = ArenaOfRequest(request);
  if (arena == nullptr || !DiscardBlocks(*arena, true)) return EFAULT;
  AddToDestroyed(arena->index);
  RetireArena(*arena);
  return 0;
}

int Dss(const Request& request) {
  const char* word = nullptr;
  int error = request.Write(&word);
  if (error != 0) return error;
  if (word != nullptr) {
    bool known = false;
    for (const char* choice : kDssChoices) known |= strcmp(choice, word) == 0;
    if (!known) return EINVAL;
    if (strcmp(word, kDss) != 0) return EFAULT;
  }
  if (ArenaIndexOf(request.mib[1]) != kAllArenas && ArenaOfRequest(request) == nullptr) return EFAULT;
  return request.Read(kDss);
}

int DirtyDecayOfArena(const Request& request) {
  return ArenaOfRequest(request) == nullptr ? EFAULT : ExchangeDirtyDecay(request, request.mib[1]);
}

int MuzzyDecayOfArena(const Request& request) {
  return ArenaOfRequest(request) == nullptr ? EFAULT : ExchangeMuzzyDecay(request, request.mib[1]);
}

// The address space grows by one chunk at a time.
int RetainGrowLimit(const Request& request) {
  if (!ProcessConfiguration().retain) return ENOENT;
  if (ArenaOfRequest(request) == nullptr) return EFAULT;
  size_t limit;
  int error = request.Write(&limit);
  if (error != 0) return error;
  return request.has_new() ? EFAULT : request.Read(kChunkSize);
}

// Extent hooks are not supported.
int ExtentHooks(const Request& request) {
  if (request.mib[1] > ArenaCount()) return EFAULT;  // before the value is read, as in jemalloc
  const void* hooks;
  int error = request.Write(&hooks);
  return error != 0 ? error : EFAULT;
}

int ArenaName(const Request& request) {
  if (ArenaOfRequest(request) == nullptr) return request.mib[1] == kDestroyedArenas ? EFAULT : EINVAL;
  return ExchangeArenaName(request, request.mib[1]);
}

constexpr Node kNodes[] = {
    Leaf("initialized", Initialized),
    Leaf("decay", Purge),
    Leaf("purge", Purge),
    Leaf("reset", Reset),
    Leaf("destroy", Destroy),
    Leaf("dss", Dss),
    Leaf("dirty_decay_ms", DirtyDecayOfArena),
    Leaf("muzzy_decay_ms", MuzzyDecayOfArena),
    Leaf("extent_hooks", ExtentHooks),
    Leaf("retain_grow_limit", RetainGrowLimit),
    Leaf("name", ArenaName),
};

}  // namespace

size_t ArenaIndexOf(size_t index) { return index == ArenaCount() ? kAllArenas : index; }

constexpr NodeList kArenaNames = IndexedListOf(kNodes, IsArena);

}  // namespace heaptap
