// SPDX-License-Identifier: Apache-2.0
//
// thread.*: the calling thread; tcache.*: thread caches that a program creates. Thread caches are only numbers here,
// because the heaps keep the blocks ready.
#include "allocator/core/thread.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "allocator/core/arena.h"
#include "allocator/core/arena_life.h"
#include "allocator/core/heap.h"
#include "allocator/core/thread_totals.h"
#include "allocator/jemalloc/mallctl/tree.h"
#include "allocator/process/process.h"
#include "allocator/profiling/profiling.h"

namespace heaptap {
namespace {

int ArenaOfThread(const Request& request) {
  const unsigned old_arena = current_heap->arena;
  unsigned arena = old_arena;
  int error = request.Write(&arena);
  if (error == 0) error = request.Read(old_arena);
  if (error != 0 || arena == old_arena) return error;
  Arena* found = FindArena(arena);
  if (found == nullptr) return EFAULT;
  return BindThread(*found) ? 0 : EAGAIN;
}

// --- thread.tcache ---------------------------------------------------------------------------------------------------

// A heap always has ready lists. The thread reads back its own setting, which has no effect.
enum class CacheSetting : uint8_t { kUnset, kOn, kOff };
constinit thread_local CacheSetting cache_setting = CacheSetting::kUnset;

bool IsCacheEnabled() {
  return cache_setting == CacheSetting::kUnset ? ProcessConfiguration().tcache : cache_setting == CacheSetting::kOn;
}

int CacheEnabled(const Request& request) {
  bool old_value = IsCacheEnabled();
  bool new_value = old_value;
  int error = request.Write(&new_value);
  if (error != 0) return error;
  if (request.has_new()) cache_setting = new_value ? CacheSetting::kOn : CacheSetting::kOff;
  return request.Read(old_value);
}

// The size of the largest cached block has no effect either.
constinit thread_local bool has_cache_maximum = false;
constinit thread_local size_t cache_maximum = 0;

int CacheMaximum(const Request& request) {
  constexpr size_t kLimit = size_t{8} << 20;  // jemalloc's
  size_t old_value = has_cache_maximum ? cache_maximum : ProcessConfiguration().tcache_max;
  size_t new_value = old_value;
  int error = request.Write(&new_value);
  if (error != 0) return error;
  if (request.has_new()) {
    has_cache_maximum = true;
    cache_maximum = new_value < kLimit ? new_value : kLimit;
  }
  return request.Read(old_value);
}

void FlushReadyLists() {
  HeapScope scope;
  scope->Flush();
}

int CacheFlush(const Request& request) {
  if (!IsCacheEnabled()) return EFAULT;
  int error = request.RefuseBoth();
  if (error == 0) FlushReadyLists();
  return error;
}

int Idle(const Request& request) {
  int error = request.RefuseBoth();
  if (error == 0) FlushReadyLists();
  return error;
}

constexpr Node kThreadCacheNodes[] = {
    Leaf("enabled", CacheEnabled),
    Leaf("flush", CacheFlush),
    Leaf("max", CacheMaximum),
};
constexpr NodeList kThreadCache = ListOf(kThreadCacheNodes);

// --- thread.peak, thread.prof ----------------------------------------------------------------------------------------

int PeakReset(const Request& request) {
  int error = request.RefuseBoth();
  if (error == 0) ResetThreadPeak();
  return error;
}

constexpr Node kPeakNodes[] = {
    Leaf("read", Result<ReadThreadPeak>),
    Leaf("reset", PeakReset),
};
constexpr NodeList kPeak = ListOf(kPeakNodes);

int ProfName(const Request& request) {
  if (!ProcessConfiguration().prof) return ENOENT;
  if (request.wants_old() && request.RefuseNew() != 0) return EPERM;
  if (!request.has_new()) return request.Read(ThreadName());
  const char* name = nullptr;
  int error = request.Write(&name);
  if (error != 0) return error;
  // The system sets the name.
  if (ProcessConfiguration().prof_sys_thread_name) return ENOENT;
  return SetThreadName(name);
}

int ProfActive(const Request& request) {
  if (!ProcessConfiguration().prof) return request.has_new() ? ENOENT : request.Read(false);
  bool old_value = IsThreadActive();
  bool new_value = old_value;
  int error = request.Write(&new_value);
  if (error != 0) return error;
  if (request.has_new()) SetThreadActive(new_value);
  return request.Read(old_value);
}

constexpr Node kThreadProfNodes[] = {
    Leaf("name", ProfName),
    Leaf("active", ProfActive),
};
constexpr NodeList kThreadProf = ListOf(kThreadProfNodes);

constexpr Node kThreadNodes[] = {
    Leaf("arena", ArenaOfThread),
    Leaf("allocated", Result<ReadThreadAllocated>),
    Leaf("allocatedp", Result<ThreadAllocatedCounter>),
    Leaf("deallocated", Result<ReadThreadDeallocated>),
    Leaf("deallocatedp", Result<ThreadDeallocatedCounter>),
    Inner("tcache", kThreadCache),
    Inner("peak", kPeak),
    Inner("prof", kThreadProf),
    Leaf("idle", Idle),
};

// --- tcache ----------------------------------------------------------------------------------------------------------

// The number of caches that MALLOCX_TCACHE can express.
constexpr unsigned kMaximumCaches = 4094;
constinit std::atomic<uint64_t> taken_caches[(kMaximumCaches + 63) / 64];

int CacheCreate(const Request& request) {
  int error = request.RefuseNew();
  if (error == 0) error = request.RequireRoom(sizeof(unsigned));
  if (error != 0) return error;
  for (unsigned number = 0; number < kMaximumCaches; number++) {
    uint64_t bit = uint64_t{1} << number % 64;
    if ((taken_caches[number / 64].fetch_or(bit, std::memory_order_relaxed) & bit) == 0) return request.Read(number);
  }
  return EFAULT;
}

int ReadCacheNumber(const Request& request, unsigned* number) {
  int error = request.RefuseOld();
  return error != 0 ? error : request.Require(number);
}

int OtherCacheFlush(const Request& request) {
  unsigned number;
  return ReadCacheNumber(request, &number);
}

int CacheDestroy(const Request& request) {
  unsigned number;
  int error = ReadCacheNumber(request, &number);
  if (error == 0 && number < kMaximumCaches) {
    taken_caches[number / 64].fetch_and(~(uint64_t{1} << number % 64), std::memory_order_relaxed);
  }
  return error;
}

constexpr Node kCacheNodes[] = {
    Leaf("create", CacheCreate),
    Leaf("flush", OtherCacheFlush),
    Leaf("destroy", CacheDestroy),
};

}  // namespace

constexpr NodeList kThreadNames = ListOf(kThreadNodes);
constexpr NodeList kCacheNames = ListOf(kCacheNodes);

}  // namespace heaptap
