// SPDX-License-Identifier: Apache-2.0
//
// arena.<i>.*: the one arena, or all arenas, which are the same; arenas.*: properties of every arena.
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include <atomic>

#include "allocator/core/allocate.h"
#include "allocator/core/decay.h"
#include "allocator/core/slab.h"
#include "allocator/jemalloc/mallctl/tree.h"
#include "allocator/jemalloc/snapshot.h"
#include "allocator/platform/mutex.h"
#include "allocator/process/process.h"

namespace heaptap {
namespace {

// heaptap never calls sbrk.
constexpr const char* kDss = "disabled";
constexpr const char* kDssChoices[] = {kDss, "primary", "secondary"};

bool IsArena(size_t index) { return index <= kArenaCount || index == kAllArenas || index == kDestroyedArenas; }

// --- arena.<i> -------------------------------------------------------------------------------------------------------

int Initialized(const Request& request) { return request.ReadOnly(request.mib[1] != kDestroyedArenas); }

int PurgeArena(const Request& request) {
  int error = request.RefuseBoth();
  if (error == 0) Trim();
  return error;
}

// All threads share the arena, so it cannot be emptied.
int RefuseToEmpty(const Request& request) {
  int error = request.RefuseBoth();
  return error != 0 ? error : EFAULT;
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
  if (request.mib[1] == kDestroyedArenas) return EFAULT;
  return request.Read(kDss);
}

// Reads a decay time, and sets it with `set`.
int Decay(const Request& request, ssize_t old_value, void (*set)(ssize_t)) {
  int error = request.Read(old_value);
  ssize_t new_value = old_value;
  if (error == 0) error = request.Write(&new_value);
  if (error != 0) return error;
  if (new_value < -1 || new_value > kMaxDecayMilliseconds) return EFAULT;
  if (request.has_new()) set(new_value);
  return 0;
}

int DirtyDecayOfArena(const Request& request) {
  return request.mib[1] != 0 ? EFAULT : Decay(request, DirtyDecay(), SetDirtyDecay);
}

// A decay time that can be set and read, without an effect. Initially the value of an option.
class InertDecay {
 public:
  explicit constexpr InertDecay(ssize_t Configuration::*option) : option_(option) {}

  ssize_t Get() const {
    ssize_t value = value_.load(std::memory_order_relaxed);
    return value == kUnset ? ProcessConfiguration().*option_ : value;
  }
  void Set(ssize_t value) { value_.store(value, std::memory_order_relaxed); }

 private:
  static constexpr ssize_t kUnset = -2;
  ssize_t Configuration::*option_;
  std::atomic<ssize_t> value_{kUnset};
};

constinit InertDecay muzzy_decay(&Configuration::muzzy_decay_ms);
// The decay times of new arenas, of which there are none.
constinit InertDecay dirty_decay_of_others(&Configuration::dirty_decay_ms);
constinit InertDecay muzzy_decay_of_others(&Configuration::muzzy_decay_ms);

template <InertDecay* kTime>
int InertDecayHandler(const Request& request) {
  return Decay(request, kTime->Get(), [](ssize_t value) { kTime->Set(value); });
}

int MuzzyDecayOfArena(const Request& request) {
  return request.mib[1] != 0 ? EFAULT : InertDecayHandler<&muzzy_decay>(request);
}

// The address space grows by one chunk at a time.
int RetainGrowLimit(const Request& request) {
  if (!ProcessConfiguration().retain) return ENOENT;
  if (request.mib[1] != 0) return EFAULT;
  size_t limit;
  int error = request.Write(&limit);
  if (error != 0) return error;
  return request.has_new() ? EFAULT : request.Read(kChunkSize);
}

// Extent hooks are not supported.
int ExtentHooks(const Request& request) {
  if (request.mib[1] > kArenaCount) return EFAULT;  // before the value is read, as in jemalloc
  const void* hooks;
  int error = request.Write(&hooks);
  return error != 0 ? error : EFAULT;
}

constexpr size_t kArenaNameSize = 32;
constinit Mutex name_mutex{LockRank::kArenaName};
char arena_name[kArenaNameSize] = "auto_0";

// As in jemalloc, the old name is copied to the buffer to which the old value points. REQUIRES: name_mutex is held.
int ExchangeName(const Request& request) {
  if (request.wants_old()) {
    if (*request.old_length != sizeof(char*)) return EINVAL;
    char* target;
    memcpy(&target, request.old_value, sizeof(target));
    strcpy(target, arena_name);
  }
  const char* name = nullptr;
  int error = request.Write(&name);
  if (error != 0 || !request.has_new()) return error;
  if (name == nullptr) return EINVAL;
  strncpy(arena_name, name, kArenaNameSize - 1);
  return 0;
}

int ArenaName(const Request& request) {
  if (request.mib[1] != 0) return request.mib[1] == kDestroyedArenas ? EFAULT : EINVAL;
  MutexLock lock(name_mutex);
  return ExchangeName(request);
}

constexpr Node kArenaNodes[] = {
    Leaf("initialized", Initialized),
    Leaf("decay", PurgeArena),
    Leaf("purge", PurgeArena),
    Leaf("reset", RefuseToEmpty),
    Leaf("destroy", RefuseToEmpty),
    Leaf("dss", Dss),
    Leaf("dirty_decay_ms", DirtyDecayOfArena),
    Leaf("muzzy_decay_ms", MuzzyDecayOfArena),
    Leaf("extent_hooks", ExtentHooks),
    Leaf("retain_grow_limit", RetainGrowLimit),
    Leaf("name", ArenaName),
};

// --- arenas ----------------------------------------------------------------------------------------------------------

int BinSize(const Request& request) { return request.ReadOnly(size_t{kClassSize[request.mib[2]]}); }
int BinBlocks(const Request& request) { return request.ReadOnly(kSlabCapacity[request.mib[2]]); }
int BinSlabSize(const Request& request) {
  return request.ReadOnly(size_t{1} << ShiftOf(static_cast<unsigned>(request.mib[2])));
}

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

// No arena can be created.
int Create(const Request& request) {
  int error = request.RequireRoom(sizeof(unsigned));
  const void* hooks;
  if (error == 0) error = request.Write(&hooks);
  return error != 0 ? error : EAGAIN;
}

int Lookup(const Request& request) {
  void* pointer = nullptr;
  int error = request.Write(&pointer);
  if (error != 0) return error;
  return UsableSize(pointer) == 0 ? EINVAL : request.Read(0u);
}

constexpr size_t kQuantum = 16;  // blocks of at least this size are multiples of it

constexpr Node kArenasNodes[] = {
    Shown("narenas", Constant<unsigned{kArenaCount}>, "Arenas"),
    Shown("dirty_decay_ms", InertDecayHandler<&dirty_decay_of_others>),
    Shown("muzzy_decay_ms", InertDecayHandler<&muzzy_decay_of_others>),
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

ssize_t MuzzyDecay() { return muzzy_decay.Get(); }

constexpr NodeList kArenaNames = IndexedListOf(kArenaNodes, IsArena);
constexpr NodeList kArenasNames = ListOf(kArenasNodes);

void ResetArenaNameAfterFork() { name_mutex.Reset(); }

}  // namespace heaptap
