// SPDX-License-Identifier: Apache-2.0
#include <stddef.h>
#include <stdint.h>

#include "allocator/core/size_class.h"
#include "allocator/jemalloc/mallctl/arena_settings.h"
#include "allocator/jemalloc/mallctl/tree.h"
#include "allocator/jemalloc/stats/members.h"
#include "allocator/jemalloc/stats/print.h"

namespace heaptap {
namespace {

constexpr StatisticsColumn kDecayColumns[] = {{"decaying:", 9}, {"time", 6},      {"npages", 13},
                                              {"sweeps", 13},   {"madvises", 13}, {"purged", 13}};

constexpr StatisticsColumn kCountColumns[] = {
    {"", 21, true},    {"allocated", 16}, {"nmalloc", 16}, {"(#/sec)", 10}, {"ndalloc", 16}, {"(#/sec)", 10},
    {"nrequests", 16}, {"(#/sec)", 10},   {"nfill", 16},   {"(#/sec)", 10}, {"nflush", 16},  {"(#/sec)", 10},
};

constexpr StatisticsColumn kMemoryColumns[] = {{"", 21, true}, {"", 16}};

constexpr StatisticsColumn kBinColumns[] = {
    {"size", 20},          {"ind", 4},        {"allocated", 13}, {"nmalloc", 13}, {"(#/sec)", 8},   {"ndalloc", 13},
    {"(#/sec)", 8},        {"nrequests", 13}, {"(#/sec)", 10},   {"nshards", 9},  {"curregs", 13},  {"curslabs", 13},
    {"nonfull_slabs", 15}, {"regs", 5},       {"pgs", 4},        {"", 1},         {"util", 6},      {"nfills", 13},
    {"(#/sec)", 8},        {"nflushes", 13},  {"(#/sec)", 8},    {"nslabs", 13},  {"nreslabs", 13}, {"(#/sec)", 8},
};

constexpr StatisticsColumn kLargeColumns[] = {
    {"size", 20},    {"ind", 4},     {"allocated", 13}, {"nmalloc", 13}, {"(#/sec)", 8},
    {"ndalloc", 13}, {"(#/sec)", 8}, {"nrequests", 13}, {"(#/sec)", 8},  {"curlextents", 13},
};

constexpr StatisticsColumn kExtentColumns[] = {
    {"size", 20},  {"ind", 4},        {"ndirty", 13},   {"dirty", 13},  {"nmuzzy", 13},
    {"muzzy", 13}, {"nretained", 13}, {"retained", 13}, {"ntotal", 13}, {"total", 13},
};

// The width of a table's title, with which the first heading begins.
constexpr unsigned Width(const char* title) {
  unsigned width = 0;
  while (title[width] != '\0') width++;
  return width;
}

// `part` / `whole`, to three digits.
class Share {
 public:
  Share(uint64_t part, uint64_t whole) {
    constexpr uint64_t kThousand = 1000;
    uint64_t share = whole == 0 ? kThousand : part * kThousand / whole;
    if (share >= kThousand) {
      text_[0] = '1';
      text_[1] = '\0';
      return;
    }
    text_[0] = '0';
    text_[1] = '.';
    for (int i = 4; i >= 2; i--, share /= 10) text_[i] = static_cast<char>('0' + share % 10);
    text_[5] = '\0';
  }
  const char* text() const { return text_; }

 private:
  char text_[6];
};

// Prints kGap once for each group of omitted rows.
class Gaps {
 public:
  explicit Gaps(StatisticsEmitter* emitter) : emitter_(emitter) {}
  ~Gaps() {
    if (in_gap_) emitter_->Text(kGap);
  }
  // To be called for each row. True: the caller must print the row.
  bool Row(bool has_something) {
    if (has_something && in_gap_) emitter_->Text(kGap);
    in_gap_ = !has_something;
    return has_something;
  }

 private:
  StatisticsEmitter* emitter_;
  bool in_gap_ = false;
};

void PrintDecay(StatisticsEmitter* emitter, size_t arena, const Snapshot& snapshot) {
  int64_t dirty = arena < kAllArenas ? ReadDirtyDecay(arena) : -1;
  int64_t muzzy = arena < kAllArenas ? ReadMuzzyDecay(arena) : -1;
  uint64_t pages = snapshot.dirty / kPageSize;
  uint64_t purged = snapshot.purged_bytes / kPageSize;
  const StatisticsValue never("N/A");
  emitter->Headings(kDecayColumns);
  emitter->Text("\n");
  emitter->Cells(kDecayColumns,
                 {"dirty:", dirty < 0 ? never : dirty, pages, snapshot.purges, snapshot.purge_calls, purged});
  emitter->Text("\n");
  emitter->Cells(kDecayColumns, {"muzzy:", muzzy < 0 ? never : muzzy, 0, 0, 0, 0});
  emitter->Text("\n");
}

struct CountRow {
  uint64_t allocated = 0;
  uint64_t allocations = 0;
  uint64_t frees = 0;
  uint64_t requests = 0;
  uint64_t fills = 0;
  uint64_t flushes = 0;

  void Add(const CountRow& other) {
    allocated += other.allocated;
    allocations += other.allocations;
    frees += other.frees;
    requests += other.requests;
    fills += other.fills;
    flushes += other.flushes;
  }
};

template <size_t count>
CountRow SumOf(const ClassStatistics (&classes)[count]) {
  CountRow sum;
  for (const ClassStatistics& one : classes) {
    sum.Add({0, one.allocations, one.frees, one.requests, one.fills, one.flushes});
  }
  return sum;
}

void PrintCounts(StatisticsEmitter* emitter, const char* title, const CountRow& counts, uint64_t uptime) {
  emitter->Cells(kCountColumns,
                 {title, counts.allocated, counts.allocations, PerSecond(counts.allocations, uptime), counts.frees,
                  PerSecond(counts.frees, uptime), counts.requests, PerSecond(counts.requests, uptime), counts.fills,
                  PerSecond(counts.fills, uptime), counts.flushes, PerSecond(counts.flushes, uptime)});
  emitter->Text("\n");
}

void PrintAllCounts(StatisticsEmitter* emitter, const Snapshot& snapshot) {
  CountRow small = SumOf(snapshot.bins);
  small.allocated = snapshot.allocated_small;
  CountRow large = SumOf(snapshot.extents);
  large.allocated = snapshot.allocated_large;
  large.fills = large.allocations;  // allocated one by one, as in stats.arenas.<i>.large
  CountRow total = small;
  total.Add(large);
  emitter->Headings(kCountColumns);
  emitter->Text("\n");
  PrintCounts(emitter, "small:", small, snapshot.uptime);
  PrintCounts(emitter, "large:", large, snapshot.uptime);
  PrintCounts(emitter, "total:", total, snapshot.uptime);
}

void PrintMemory(StatisticsEmitter* emitter, const Snapshot& snapshot) {
  struct Line {
    const char* title;
    uint64_t bytes;
  };
  const Line lines[] = {
      {"mapped:", snapshot.mapped}, {"retained:", snapshot.retained},
      {"base:", snapshot.metadata}, {"internal:", 0},
      {"metadata_thp:", 0},         {"tcache_bytes:", snapshot.ready},
      {"tcache_stashed_bytes:", 0}, {"resident:", snapshot.resident},
      {"abandoned_vm:", 0},         {"extent_avail:", 0},
  };
  emitter->Headings(kMemoryColumns);
  emitter->Text("\n");
  emitter->Cells(kMemoryColumns, {"active:", snapshot.active});
  emitter->Text("\n");
  for (const Line& line : lines) {
    emitter->Cells(kMemoryColumns, {line.title, line.bytes});
    emitter->Text("\n");
  }
}

void PrintBins(StatisticsEmitter* emitter, const Snapshot& snapshot, bool mutexes) {
  constexpr char kTitle[] = "bins:";
  uint64_t uptime = snapshot.uptime;
  emitter->Text(kTitle);
  emitter->Headings(kBinColumns, Width(kTitle));
  if (mutexes) PrintMutexHeadings(emitter);
  emitter->Text("\n");
  Gaps gaps(emitter);
  for (unsigned c = 0; c < kSmallClasses; c++) {
    const ClassStatistics& bin = snapshot.bins[c];
    if (!gaps.Row(bin.allocations != 0)) continue;
    Share utilization(bin.live, uint64_t{BinSlabBlocks(c)} * bin.slabs);
    emitter->Cells(kBinColumns, {kClassSize[c],
                                 c,
                                 bin.live * kClassSize[c],
                                 bin.allocations,
                                 PerSecond(bin.allocations, uptime),
                                 bin.frees,
                                 PerSecond(bin.frees, uptime),
                                 bin.requests,
                                 PerSecond(bin.requests, uptime),
                                 1,
                                 bin.live,
                                 bin.slabs,
                                 bin.slabs_nonfull,
                                 BinSlabBlocks(c),
                                 kBinSlabSize[c] / kPageSize,
                                 "",
                                 utilization.text(),
                                 bin.fills,
                                 PerSecond(bin.fills, uptime),
                                 bin.flushes,
                                 PerSecond(bin.flushes, uptime),
                                 bin.slabs_made,
                                 0,
                                 0});
    if (mutexes) PrintMutexCells(emitter);
    emitter->Text("\n");
  }
}

void PrintLarge(StatisticsEmitter* emitter, const Snapshot& snapshot) {
  constexpr char kTitle[] = "large:";
  uint64_t uptime = snapshot.uptime;
  emitter->Text(kTitle);
  emitter->Headings(kLargeColumns, Width(kTitle));
  emitter->Text("\n");
  Gaps gaps(emitter);
  size_t size = kSmallMaximum;
  for (unsigned i = 0; i < kExtentClasses; i++) {
    const ClassStatistics& extent = snapshot.extents[i];
    size = RoundUpToClass(size + 1);
    if (!gaps.Row(extent.allocations != 0)) continue;
    emitter->Cells(kLargeColumns, {size, kSmallClasses + i, extent.live * size, extent.allocations,
                                   PerSecond(extent.allocations, uptime), extent.frees, PerSecond(extent.frees, uptime),
                                   extent.requests, PerSecond(extent.requests, uptime), extent.live});
    emitter->Text("\n");
  }
}

void PrintFreeExtents(StatisticsEmitter* emitter, const Snapshot& snapshot) {
  constexpr char kTitle[] = "extents:";
  emitter->Text(kTitle);
  emitter->Headings(kExtentColumns, Width(kTitle));
  emitter->Text("\n");
  Gaps gaps(emitter);
  size_t size = kPageSize;
  for (unsigned i = 0; i < kPageClasses; i++) {
    const FreeExtentStatistics& extents = snapshot.free_extents[i];
    size_t count = extents.dirty + extents.retained;
    if (gaps.Row(count != 0)) {
      emitter->Cells(kExtentColumns, {size, i, extents.dirty, extents.dirty_bytes, 0, 0, extents.retained,
                                      extents.retained_bytes, count, extents.dirty_bytes + extents.retained_bytes});
      emitter->Text("\n");
    }
    size = size < kEveryClassIsPages ? size + kPageSize : RoundUpToClass(size + 1);
  }
}

}  // namespace

void PrintArena(StatisticsEmitter* emitter, size_t arena, const Snapshot& snapshot, const StatisticsParts& parts) {
  constexpr size_t kDepth = 3;  // stats.arenas.0
  MemberPrinter(emitter, &snapshot, IsWanted, &parts).PrintAt(arena, kArenaStatisticsNames, kDepth);
  if (emitter->is_json()) return;
  PrintDecay(emitter, arena, snapshot);
  PrintAllCounts(emitter, snapshot);
  PrintMemory(emitter, snapshot);
  if (parts.mutexes) PrintArenaMutexes(emitter);
  if (parts.bins) PrintBins(emitter, snapshot, parts.mutexes);
  if (parts.large) PrintLarge(emitter, snapshot);
  if (parts.extents) PrintFreeExtents(emitter, snapshot);
  if (parts.huge_pages) PrintHugePageShard(emitter);
}

}  // namespace heaptap
