// SPDX-License-Identifier: Apache-2.0
//
// stats.*: the figures of the last snapshot, which `epoch` takes. Where jemalloc counts what does not exist here
// (locks' waits, huge page slabs, muzzy pages), the count is 0.
#include "allocator/core/control.h"
#include "allocator/core/maintenance.h"
#include "allocator/core/size_class.h"
#include "allocator/jemalloc/mallctl/tree.h"
#include "allocator/jemalloc/snapshot.h"

namespace heaptap {
namespace {

constexpr Handler kNoBytes = Constant<size_t{0}>;
constexpr Handler kNoEvents = Constant<uint64_t{0}>;

template <auto kMember>
int Figure(const Request& request) {
  SnapshotScope snapshot;
  return request.ReadOnly((*snapshot).*kMember);
}

// Bytes as a number of pages.
template <auto kMember>
int Pages(const Request& request) {
  SnapshotScope snapshot;
  return request.ReadOnly((*snapshot).*kMember / kPageSize);
}

// --- locks -----------------------------------------------------------------------------------------------------------

constexpr Node kLockNodes[] = {
    Leaf("num_ops", kNoEvents),
    Leaf("num_wait", kNoEvents),
    Leaf("num_spin_acq", kNoEvents),
    Leaf("num_owner_switch", kNoEvents),
    Leaf("total_wait_time", kNoEvents),
    Leaf("max_wait_time", kNoEvents),
    Leaf("max_num_thds", Constant<uint32_t{0}>),
};
constexpr NodeList kLock = ListOf(kLockNodes);

// jemalloc looks at no argument.
int ResetLocks(const Request&) { return 0; }

constexpr Node kGlobalLockNodes[] = {
    Inner("background_thread", kLock),
    Inner("max_per_bg_thd", kLock),
    Inner("ctl", kLock),
    Inner("prof", kLock),
    Inner("prof_thds_data", kLock),
    Inner("prof_dump", kLock),
    Inner("prof_recent_alloc", kLock),
    Inner("prof_recent_dump", kLock),
    Inner("prof_stats", kLock),
    Leaf("reset", ResetLocks),
};
constexpr NodeList kGlobalLocks = ListOf(kGlobalLockNodes);

constexpr Node kArenaLockNodes[] = {
    Inner("large", kLock),
    Inner("extent_avail", kLock),
    Inner("extents_dirty", kLock),
    Inner("extents_muzzy", kLock),
    Inner("extents_retained", kLock),
    Inner("decay_dirty", kLock),
    Inner("decay_muzzy", kLock),
    Inner("base", kLock),
    Inner("tcache_list", kLock),
    Inner("hpa_shard", kLock),
    Inner("hpa_shard_grow", kLock),
    Inner("hpa_sec", kLock),
};
constexpr NodeList kArenaLocks = ListOf(kArenaLockNodes);

// --- size classes ----------------------------------------------------------------------------------------------------

using Classes = const ClassStatistics* (*)(const Snapshot& snapshot, size_t* count);

const ClassStatistics* Bins(const Snapshot& snapshot, size_t* count) {
  *count = kSmallClasses;
  return snapshot.bins;
}

const ClassStatistics* Extents(const Snapshot& snapshot, size_t* count) {
  *count = kExtentClasses;
  return snapshot.extents;
}

template <Classes kClasses, auto kMember>
int Sum(const Request& request) {
  SnapshotScope snapshot;
  size_t count;
  const ClassStatistics* classes = kClasses(*snapshot, &count);
  uint64_t sum = 0;
  for (size_t i = 0; i < count; i++) sum += classes[i].*kMember;
  return request.ReadOnly(sum);
}

template <Classes kClasses, auto kMember>
int OfClass(const Request& request) {
  SnapshotScope snapshot;
  size_t count;
  return request.ReadOnly(kClasses(*snapshot, &count)[request.mib[4]].*kMember);
}

constexpr Node kSmallNodes[] = {
    Leaf("allocated", Figure<&Snapshot::allocated_small>), Leaf("nmalloc", Sum<Bins, &ClassStatistics::allocations>),
    Leaf("ndalloc", Sum<Bins, &ClassStatistics::frees>),   Leaf("nrequests", Sum<Bins, &ClassStatistics::requests>),
    Leaf("nfills", Sum<Bins, &ClassStatistics::fills>),    Leaf("nflushes", Sum<Bins, &ClassStatistics::flushes>),
};
constexpr NodeList kSmall = ListOf(kSmallNodes);

// Larger blocks come one by one: each allocation is a refill.
constexpr Node kLargeNodes[] = {
    Leaf("allocated", Figure<&Snapshot::allocated_large>),
    Leaf("nmalloc", Sum<Extents, &ClassStatistics::allocations>),
    Leaf("ndalloc", Sum<Extents, &ClassStatistics::frees>),
    Leaf("nrequests", Sum<Extents, &ClassStatistics::requests>),
    Leaf("nfills", Sum<Extents, &ClassStatistics::allocations>),
    Leaf("nflushes", Sum<Extents, &ClassStatistics::flushes>),
};
constexpr NodeList kLarge = ListOf(kLargeNodes);

bool IsBin(size_t index) { return index < kSmallClasses; }
bool IsExtentClass(size_t index) { return index < kExtentClasses; }

constexpr Node kBinNodes[] = {
    Leaf("nmalloc", OfClass<Bins, &ClassStatistics::allocations>),
    Leaf("ndalloc", OfClass<Bins, &ClassStatistics::frees>),
    Leaf("nrequests", OfClass<Bins, &ClassStatistics::requests>),
    Leaf("curregs", OfClass<Bins, &ClassStatistics::live>),
    Leaf("nfills", OfClass<Bins, &ClassStatistics::fills>),
    Leaf("nflushes", OfClass<Bins, &ClassStatistics::flushes>),
    Leaf("nslabs", OfClass<Bins, &ClassStatistics::slabs_made>),
    Leaf("nreslabs", kNoEvents),
    Leaf("curslabs", OfClass<Bins, &ClassStatistics::slabs>),
    Leaf("nonfull_slabs", OfClass<Bins, &ClassStatistics::slabs_nonfull>),
    Inner("mutex", kLock),
};
constexpr NodeList kBins = IndexedListOf(kBinNodes, IsBin);

constexpr Node kLargeExtentNodes[] = {
    Leaf("nmalloc", OfClass<Extents, &ClassStatistics::allocations>),
    Leaf("ndalloc", OfClass<Extents, &ClassStatistics::frees>),
    Leaf("nrequests", OfClass<Extents, &ClassStatistics::requests>),
    Leaf("curlextents", OfClass<Extents, &ClassStatistics::live>),
};
constexpr NodeList kLargeExtents = IndexedListOf(kLargeExtentNodes, IsExtentClass);

bool IsPageClass(size_t index) { return index < kPageClasses; }

template <auto kMember>
int OfStretches(const Request& request) {
  SnapshotScope snapshot;
  return request.ReadOnly(snapshot->stretches[request.mib[4]].*kMember);
}

constexpr Node kFreeExtentNodes[] = {
    Leaf("ndirty", OfStretches<&StretchStatistics::dirty>),
    Leaf("nmuzzy", kNoBytes),
    Leaf("nretained", OfStretches<&StretchStatistics::retained>),
    Leaf("dirty_bytes", OfStretches<&StretchStatistics::dirty_bytes>),
    Leaf("muzzy_bytes", kNoBytes),
    Leaf("retained_bytes", OfStretches<&StretchStatistics::retained_bytes>),
};
constexpr NodeList kFreeExtents = IndexedListOf(kFreeExtentNodes, IsPageClass);

// --- huge page slabs -------------------------------------------------------------------------------------------------

constexpr size_t kHugePageClasses = 64;  // jemalloc's
bool IsHugePageClass(size_t index) { return index < kHugePageClasses; }

constexpr Node kHugeSlabNodes[] = {
    Leaf("npageslabs_nonhuge", kNoBytes), Leaf("npageslabs_huge", kNoBytes), Leaf("nactive_nonhuge", kNoBytes),
    Leaf("nactive_huge", kNoBytes),       Leaf("ndirty_nonhuge", kNoBytes),  Leaf("ndirty_huge", kNoBytes),
};
constexpr NodeList kHugeSlabs = ListOf(kHugeSlabNodes);
constexpr NodeList kNonfullHugeSlabs = IndexedListOf(kHugeSlabNodes, IsHugePageClass);

constexpr Node kHugeShardNodes[] = {
    Inner("full_slabs", kHugeSlabs),  Inner("empty_slabs", kHugeSlabs), Inner("nonfull_slabs", kNonfullHugeSlabs),
    Leaf("npurge_passes", kNoEvents), Leaf("npurges", kNoEvents),       Leaf("nhugifies", kNoEvents),
    Leaf("ndehugifies", kNoEvents),
};
constexpr NodeList kHugeShard = ListOf(kHugeShardNodes);

// --- stats.arenas.<i> ------------------------------------------------------------------------------------------------

bool HasStatistics(size_t index) { return index <= kArenaCount || index == kAllArenas; }

// What is each arena's own has no value for all of them.
bool IsMerged(const Request& request) { return request.mib[2] != 0; }

int Break(const Request& request) {
  const char* text = IsMerged(request) ? "N/A" : "disabled";
  return request.ReadOnly(text);
}

int DirtyDecayOfArena(const Request& request) {
  return request.ReadOnly(IsMerged(request) ? ssize_t{-1} : DirtyDecay());
}

int MuzzyDecayOfArena(const Request& request) {
  return request.ReadOnly(IsMerged(request) ? ssize_t{-1} : MuzzyDecay());
}

constexpr Node kArenaNodes[] = {
    Leaf("nthreads", Figure<&Snapshot::threads>),
    Leaf("uptime", Figure<&Snapshot::uptime>),
    Leaf("dss", Break),
    Leaf("dirty_decay_ms", DirtyDecayOfArena),
    Leaf("muzzy_decay_ms", MuzzyDecayOfArena),
    Leaf("pactive", Pages<&Snapshot::active>),
    Leaf("pdirty", Pages<&Snapshot::dirty>),
    Leaf("pmuzzy", kNoBytes),
    Leaf("mapped", Figure<&Snapshot::mapped>),
    Leaf("retained", Figure<&Snapshot::retained>),
    Leaf("extent_avail", kNoBytes),
    Leaf("dirty_npurge", Figure<&Snapshot::purges>),
    Leaf("dirty_nmadvise", Figure<&Snapshot::purge_calls>),
    Leaf("dirty_purged", Pages<&Snapshot::purged_bytes>),
    Leaf("muzzy_npurge", kNoEvents),
    Leaf("muzzy_nmadvise", kNoEvents),
    Leaf("muzzy_purged", kNoEvents),
    Leaf("base", Figure<&Snapshot::metadata>),
    Leaf("internal", kNoBytes),
    Leaf("metadata_thp", kNoBytes),
    Leaf("tcache_bytes", Figure<&Snapshot::ready>),
    Leaf("tcache_stashed_bytes", kNoBytes),
    Leaf("resident", Figure<&Snapshot::resident>),
    Leaf("abandoned_vm", kNoBytes),
    Leaf("hpa_sec_bytes", kNoBytes),
    Inner("small", kSmall),
    Inner("large", kLarge),
    Inner("bins", kBins),
    Inner("lextents", kLargeExtents),
    Inner("extents", kFreeExtents),
    Inner("mutexes", kArenaLocks),
    Inner("hpa_shard", kHugeShard),
};
constexpr NodeList kArenas = IndexedListOf(kArenaNodes, HasStatistics);

// --- stats -----------------------------------------------------------------------------------------------------------

constexpr Node kBackgroundThreadNodes[] = {
    Leaf("num_threads", kNoBytes),
    Leaf("num_runs", kNoEvents),
    Leaf("run_interval", kNoEvents),
};
constexpr NodeList kBackgroundThread = ListOf(kBackgroundThreadNodes);

constexpr Node kStatisticsNodes[] = {
    Leaf("allocated", Figure<&Snapshot::allocated>),
    Leaf("active", Figure<&Snapshot::active>),
    Leaf("metadata", Figure<&Snapshot::metadata>),
    Leaf("metadata_thp", kNoBytes),
    Leaf("resident", Figure<&Snapshot::resident>),
    Leaf("mapped", Figure<&Snapshot::mapped>),
    Leaf("retained", Figure<&Snapshot::retained>),
    Inner("background_thread", kBackgroundThread),
    Inner("mutexes", kGlobalLocks),
    Inner("arenas", kArenas),
    Leaf("zero_reallocs", kNoBytes),
};

// Without a snapshot.
size_t ApproximateActive() { return ReadFigure(&heaptap_statistics::active); }

constexpr Node kApproximateNodes[] = {
    Leaf("active", Result<ApproximateActive>),
};

}  // namespace

constexpr NodeList kStatisticsNames = ListOf(kStatisticsNodes);
constexpr NodeList kApproximateStatisticsNames = ListOf(kApproximateNodes);

}  // namespace heaptap
