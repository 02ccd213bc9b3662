// SPDX-License-Identifier: Apache-2.0
//
// arenas.*: properties of every arena, and the making of arenas.
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/core/allocate.h"
#include "allocator/core/arena.h"
#include "allocator/core/arena_life.h"
#include "allocator/core/size_class.h"
#include "allocator/jemalloc/mallctl/arena_settings.h"
#include "allocator/jemalloc/mallctl/tree.h"
#include "allocator/jemalloc/snapshot.h"

namespace heaptap {
namespace {

int BinSize(const Request& request) { return request.ReadOnly(size_t{kClassSize[request.mib[2]]}); }
int BinBlocks(const Request& request) { return request.ReadOnly(BinSlabBlocks(static_cast<unsigned>(request.mib[2]))); }
int BinSlabSize(const Request& request) { return request.ReadOnly(kBinSlabSize[request.mib[2]]); }

constexpr Node kBinNodes[] = {
    Shown("size", BinSize),
    Shown("nregs", BinBlocks),
    Shown("slab_size", BinSlabSize),
    Shown("nshards", Constant<uint32_t{1}>),
};
constexpr NodeList kBins = IndexedListOf(kBinNodes, IsBin);

int ExtentSize(const Request& request) {
  size_t size = kSmallMaximum;
  for (size_t i = 0; i <= request.mib[2]; i++) size = RoundUpToClass(size + 1);
  return request.ReadOnly(size);
}

constexpr Node kExtentNodes[] = {
    Shown("size", ExtentSize),
};
constexpr NodeList kExtents = IndexedListOf(kExtentNodes, IsExtentClass);

// Memory comes from heaptap alone, so an arena cannot have a program's hooks for extents.
int Create(const Request& request) {
  int error = request.RequireRoom(sizeof(unsigned));
  const void* hooks = nullptr;
  if (error == 0) error = request.Write(&hooks);
  if (error != 0) return error;
  if (hooks != nullptr) return EFAULT;
  Arena* arena = MakeArena();
  if (arena == nullptr) return EAGAIN;
  if (!ClearSnapshotOf(arena->index)) {
    RetireArena(*arena);
    return EAGAIN;
  }
  BeginArenaSettings(arena->index);
  return request.Read(unsigned{arena->index});
}

int Lookup(const Request& request) {
  void* pointer = nullptr;
  int error = request.Write(&pointer);
  if (error != 0) return error;
  return UsableSize(pointer) == 0 ? EINVAL : request.Read(unsigned{ArenaOfBlock(pointer)});
}

int DirtyDecayOfNew(const Request& request) { return ExchangeDirtyDecay(request, kNewArenas); }
int MuzzyDecayOfNew(const Request& request) { return ExchangeMuzzyDecay(request, kNewArenas); }

constexpr size_t kQuantum = 16;  // blocks of at least this size are multiples of it

constexpr Node kArenasNodes[] = {
    Shown("narenas", Result<ArenaCount>, "Arenas"),
    Shown("dirty_decay_ms", DirtyDecayOfNew),
    Shown("muzzy_decay_ms", MuzzyDecayOfNew),
    Shown("quantum", Constant<kQuantum>, "Quantum size"),
    Shown("page", Constant<kPageSize>, "Page size"),
    // All small classes have ready lists.
    Shown("tcache_max", Constant<kSmallMaximum>, "Maximum thread-cached size class"),
    Shown("nbins", Constant<kSmallClasses>, "Number of bin size classes"),
    Shown("nhbins", Constant<kSmallClasses>, "Number of thread-cache bin size classes"),
    Shown("bin", kBins),
    Shown("nlextents", Constant<kExtentClasses>, "Number of large size classes"),
    Shown("lextent", kExtents),
    Leaf("create", Create),
    Leaf("lookup", Lookup),
};

}  // namespace

constexpr NodeList kArenasNames = ListOf(kArenasNodes);

}  // namespace heaptap
