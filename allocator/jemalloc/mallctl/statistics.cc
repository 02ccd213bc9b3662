// SPDX-License-Identifier: Apache-2.0
//
// stats.*: figures of the last snapshot, which `epoch` takes. Figures about parts that heaptap does not have (absent.h,
// muzzy pages) are 0.
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "allocator/core/arena.h"
#include "allocator/core/control.h"
#include "allocator/core/size_class.h"
#include "allocator/jemalloc/absent.h"
#include "allocator/jemalloc/mallctl/arena_settings.h"
#include "allocator/jemalloc/mallctl/tree.h"
#include "allocator/jemalloc/snapshot.h"

namespace heaptap {
namespace {

constexpr Handler kNoBytes = Constant<size_t{0}>;
constexpr Handler kNoEvents = Constant<uint64_t{0}>;

size_t TheArenaOf(const Request& request) { return ArenaIndexOf(request.mib[2]); }
size_t AllTogether(const Request&) { return kAllArenas; }

// A figure of an arena or, with AllTogether, of all arenas.
template <auto kMember, auto kArena = TheArenaOf>
int FromSnapshot(const Request& request) {
  SnapshotScope snapshot(kArena(request), request.snapshot);
  return request.ReadOnly((*snapshot).*kMember);
}

// A number of bytes, as a number of pages.
template <auto kMember>
int Pages(const Request& request) {
  SnapshotScope snapshot(TheArenaOf(request), request.snapshot);
  return request.ReadOnly((*snapshot).*kMember / kPageSize);
}

// --- parts that heaptap does not have --------------------------------------------------------------------------------

// A list of nodes with these names, and room for kMore nodes.
template <size_t kCount, size_t kMore = 0>
struct NamedNodes {
  Node nodes[kCount + kMore] = {};

  // All names get the same handler or list.
  template <typename HandlerOrList>
  constexpr NamedNodes(const char* const (&names)[kCount], const HandlerOrList& same) {
    for (size_t i = 0; i < kCount; i++) nodes[i] = Shown(names[i], same);
  }
  constexpr NodeList list() const { return {nodes, kCount + kMore, nullptr, nullptr, nullptr}; }
};

template <size_t kCount>
constexpr size_t CountOf(const char* const (&)[kCount]) {
  return kCount;
}

constexpr auto kMutexNodes = [] {
  NamedNodes<CountOf(absent::kMutexFigures), 1> named(absent::kMutexFigures, kNoEvents);
  named.nodes[CountOf(absent::kMutexFigures)] = Shown("max_num_thds", Constant<uint32_t{0}>);
  return named;
}();
constexpr NodeList kMutex = kMutexNodes.list();

// Ignores all arguments, as jemalloc does.
int ResetMutexes(const Request&) { return 0; }

constexpr auto kGlobalMutexNodes = [] {
  NamedNodes<CountOf(absent::kGlobalMutexes), 1> named(absent::kGlobalMutexes, kMutex);
  named.nodes[CountOf(absent::kGlobalMutexes)] = Leaf("reset", ResetMutexes);
  return named;
}();
constexpr NodeList kGlobalMutexes = kGlobalMutexNodes.list();

constexpr NamedNodes kArenaMutexNodes(absent::kArenaMutexes, kMutex);
constexpr NodeList kArenaMutexes = kArenaMutexNodes.list();

constexpr NamedNodes kBackgroundThreadNodes(absent::kBackgroundThreadFigures, kNoEvents);
constexpr NodeList kBackgroundThread = kBackgroundThreadNodes.list();

constexpr NamedNodes kShardSlabNodes(absent::kShardSlabFigures, kNoBytes);
bool IsShardSlabSize(size_t index) { return index < absent::kShardSlabSizes; }
constexpr NodeList kShardSlabsBySize = IndexedListOf(kShardSlabNodes.nodes, IsShardSlabSize);
// jemalloc's report omits the last name here.
constexpr auto kShardSlabTotalNodes = [] {
  NamedNodes named = kShardSlabNodes;
  named.nodes[CountOf(absent::kShardSlabFigures) - 1].key = nullptr;
  return named;
}();
constexpr NodeList kShardSlabTotals = kShardSlabTotalNodes.list();

constexpr auto kShardNodes = [] {
  NamedNodes<CountOf(absent::kShardFigures), 3> named(absent::kShardFigures, kNoEvents);
  Node* more = named.nodes + CountOf(absent::kShardFigures);
  *more++ = Shown("full_slabs", kShardSlabTotals);
  *more++ = Shown("empty_slabs", kShardSlabTotals);
  *more++ = Shown("nonfull_slabs", kShardSlabsBySize);
  return named;
}();
constexpr NodeList kShard = kShardNodes.list();

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
  SnapshotScope snapshot(TheArenaOf(request), request.snapshot);
  size_t count;
  const ClassStatistics* classes = kClasses(*snapshot, &count);
  uint64_t sum = 0;
  for (size_t i = 0; i < count; i++) sum += classes[i].*kMember;
  return request.ReadOnly(sum);
}

template <Classes kClasses, auto kMember>
int OfClass(const Request& request) {
  SnapshotScope snapshot(TheArenaOf(request), request.snapshot);
  size_t count;
  return request.ReadOnly(kClasses(*snapshot, &count)[request.mib[4]].*kMember);
}

constexpr Node kSmallNodes[] = {
    Shown("allocated", FromSnapshot<&Snapshot::allocated_small>),
    Shown("nmalloc", Sum<Bins, &ClassStatistics::allocations>),
    Shown("ndalloc", Sum<Bins, &ClassStatistics::frees>),
    Shown("nrequests", Sum<Bins, &ClassStatistics::requests>),
    Shown("nfills", Sum<Bins, &ClassStatistics::fills>),
    Shown("nflushes", Sum<Bins, &ClassStatistics::flushes>),
};
constexpr NodeList kSmall = ListOf(kSmallNodes);

// Larger blocks are allocated one by one, so each allocation is a fill.
constexpr Node kLargeNodes[] = {
    Shown("allocated", FromSnapshot<&Snapshot::allocated_large>),
    Shown("nmalloc", Sum<Extents, &ClassStatistics::allocations>),
    Shown("ndalloc", Sum<Extents, &ClassStatistics::frees>),
    Shown("nrequests", Sum<Extents, &ClassStatistics::requests>),
    Shown("nfills", Sum<Extents, &ClassStatistics::allocations>),
    Shown("nflushes", Sum<Extents, &ClassStatistics::flushes>),
};
constexpr NodeList kLarge = ListOf(kLargeNodes);

constexpr Node kBinNodes[] = {
    Shown("nmalloc", OfClass<Bins, &ClassStatistics::allocations>),
    Shown("ndalloc", OfClass<Bins, &ClassStatistics::frees>),
    Shown("nrequests", OfClass<Bins, &ClassStatistics::requests>),
    Shown("curregs", OfClass<Bins, &ClassStatistics::live>),
    Shown("nfills", OfClass<Bins, &ClassStatistics::fills>),
    Shown("nflushes", OfClass<Bins, &ClassStatistics::flushes>),
    Leaf("nslabs", OfClass<Bins, &ClassStatistics::slabs_made>),
    Shown("nreslabs", kNoEvents),
    Shown("curslabs", OfClass<Bins, &ClassStatistics::slabs>),
    Shown("nonfull_slabs", OfClass<Bins, &ClassStatistics::slabs_nonfull>),
    Shown("mutex", kMutex),
};
constexpr NodeList kBins = IndexedListOf(kBinNodes, IsBin);

constexpr Node kLargeExtentNodes[] = {
    Leaf("nmalloc", OfClass<Extents, &ClassStatistics::allocations>),
    Leaf("ndalloc", OfClass<Extents, &ClassStatistics::frees>),
    Leaf("nrequests", OfClass<Extents, &ClassStatistics::requests>),
    Shown("curlextents", OfClass<Extents, &ClassStatistics::live>),
};
constexpr NodeList kLargeExtents = IndexedListOf(kLargeExtentNodes, IsExtentClass);

bool IsPageClass(size_t index) { return index < kPageClasses; }

template <auto kMember>
int OfFreeExtents(const Request& request) {
  SnapshotScope snapshot(TheArenaOf(request), request.snapshot);
  return request.ReadOnly(snapshot->free_extents[request.mib[4]].*kMember);
}

constexpr Node kFreeExtentNodes[] = {
    Shown("ndirty", OfFreeExtents<&FreeExtentStatistics::dirty>),
    Shown("nmuzzy", kNoBytes),
    Shown("nretained", OfFreeExtents<&FreeExtentStatistics::retained>),
    Shown("dirty_bytes", OfFreeExtents<&FreeExtentStatistics::dirty_bytes>),
    Shown("muzzy_bytes", kNoBytes),
    Shown("retained_bytes", OfFreeExtents<&FreeExtentStatistics::retained_bytes>),
};
constexpr NodeList kFreeExtents = IndexedListOf(kFreeExtentNodes, IsPageClass);

// --- stats.arenas.<i> ------------------------------------------------------------------------------------------------

bool HasStatistics(size_t index) {
  const size_t arena = ArenaIndexOf(index);
  return arena == kDestroyedArenas ? HasDestroyedArenas() : arena == kAllArenas || FindArena(arena) != nullptr;
}

// Settings of single arenas have no value for several.
bool IsMerged(const Request& request) { return TheArenaOf(request) >= kAllArenas; }

int Threads(const Request& request) {
  SnapshotScope snapshot(TheArenaOf(request), request.snapshot);
  return request.ReadOnly(static_cast<unsigned>(snapshot->threads));
}

int Dss(const Request& request) {
  const char* text = IsMerged(request) ? "N/A" : "disabled";
  return request.ReadOnly(text);
}

int DirtyDecayOfArena(const Request& request) {
  return request.ReadOnly(IsMerged(request) ? ssize_t{-1} : ReadDirtyDecay(TheArenaOf(request)));
}

int MuzzyDecayOfArena(const Request& request) {
  return request.ReadOnly(IsMerged(request) ? ssize_t{-1} : ReadMuzzyDecay(TheArenaOf(request)));
}

constexpr Node kArenaNodes[] = {
    Shown("nthreads", Threads, "assigned threads"),
    ShownAs("uptime_ns", Leaf("uptime", FromSnapshot<&Snapshot::uptime>), "uptime"),
    Shown("dss", Dss, "dss allocation precedence"),
    Shown("dirty_decay_ms", DirtyDecayOfArena),
    Shown("muzzy_decay_ms", MuzzyDecayOfArena),
    Shown("pactive", Pages<&Snapshot::active>),
    Shown("pdirty", Pages<&Snapshot::dirty>),
    Shown("pmuzzy", kNoBytes),
    Shown("mapped", FromSnapshot<&Snapshot::mapped>),
    Shown("retained", FromSnapshot<&Snapshot::retained>),
    Shown("extent_avail", kNoBytes),
    Shown("dirty_npurge", FromSnapshot<&Snapshot::purges>),
    Shown("dirty_nmadvise", FromSnapshot<&Snapshot::purge_calls>),
    Shown("dirty_purged", Pages<&Snapshot::purged_bytes>),
    Shown("muzzy_npurge", kNoEvents),
    Shown("muzzy_nmadvise", kNoEvents),
    Shown("muzzy_purged", kNoEvents),
    Shown("base", FromSnapshot<&Snapshot::metadata>),
    Shown("internal", kNoBytes),
    Shown("metadata_thp", kNoBytes),
    Shown("tcache_bytes", FromSnapshot<&Snapshot::ready>),
    Shown("tcache_stashed_bytes", kNoBytes),
    Shown("resident", FromSnapshot<&Snapshot::resident>),
    Shown("abandoned_vm", kNoBytes),
    ShownAs("sec_bytes", Leaf("hpa_sec_bytes", kNoBytes)),
    Shown("small", kSmall),
    Shown("large", kLarge),
    Shown("bins", kBins),
    Shown("lextents", kLargeExtents),
    Shown("extents", kFreeExtents),
    Shown("mutexes", kArenaMutexes),
    Shown("hpa_shard", kShard),
};
constexpr NodeList kArenas = IndexedListOf(kArenaNodes, HasStatistics);

// --- stats -----------------------------------------------------------------------------------------------------------

constexpr Node kStatisticsNodes[] = {
    Shown("allocated", FromSnapshot<&Snapshot::allocated, AllTogether>),
    Shown("active", FromSnapshot<&Snapshot::active, AllTogether>),
    Shown("metadata", FromSnapshot<&Snapshot::metadata, AllTogether>),
    Shown("metadata_thp", kNoBytes),
    Shown("resident", FromSnapshot<&Snapshot::resident, AllTogether>),
    Shown("mapped", FromSnapshot<&Snapshot::mapped, AllTogether>),
    Shown("retained", FromSnapshot<&Snapshot::retained, AllTogether>),
    Shown("background_thread", kBackgroundThread),
    Shown("mutexes", kGlobalMutexes),
    Inner("arenas", kArenas),
    Shown("zero_reallocs", kNoBytes),
};

// Reads the figure without a snapshot.
size_t ApproximateActive() { return ReadFigure(&heaptap_statistics::active); }

constexpr Node kApproximateNodes[] = {
    Leaf("active", Result<ApproximateActive>),
};

}  // namespace

constexpr NodeList kStatisticsNames = ListOf(kStatisticsNodes);
constexpr NodeList kArenaStatisticsNames = kArenas;
constexpr NodeList kApproximateStatisticsNames = ListOf(kApproximateNodes);

}  // namespace heaptap
