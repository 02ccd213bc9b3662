// SPDX-License-Identifier: Apache-2.0
//
// malloc_stats_print: the statistics as text in jemalloc's format, or as JSON with jemalloc's keys, so that programs
// that parse jemalloc's report can parse heaptap's. The JSON comes from mallctl's tree (members.h), the tables of the
// text from the files print_*.cc. Figures about parts that heaptap does not have (absent.h) are 0.
//
//   PrintStatistics             print.cc: reads `options`
//     PrintGeneral              version, config, opt, prof, arenas
//     PrintTotals               stats
//     PrintArena                stats.arenas.<i>: totals, bins, large, extents
//       PrintArenaMutexes, PrintHugePageShard
//
// Any thread, no lock held. Allocates nothing from the heap.
#ifndef HEAPTAP_ALLOCATOR_JEMALLOC_STATS_PRINT_H_
#define HEAPTAP_ALLOCATOR_JEMALLOC_STATS_PRINT_H_

#include <stddef.h>
#include <stdint.h>

#include "allocator/jemalloc/snapshot.h"
#include "allocator/jemalloc/stats/emitter.h"

namespace heaptap {

// Takes a new snapshot and prints it. `write` nullptr: to malloc_message, or else to stderr. `options`: jemalloc's
// letters, or nullptr. J selects JSON; each other letter omits a part: g general information, m and d merged and
// destroyed arenas, a single arenas, b bins, l large sizes, x mutexes, e extents, h huge page shards.
void PrintStatistics(WriteFunction write, void* opaque, const char* options);

// Prints the statistics to malloc_message or stderr, for stats_interval.
void PrintStatistics(const char* options);
// The exit handler of stats_print.
void PrintStatisticsAtExit();

// For the files print_*.cc. ---------------------------------------------------------------------------------

// The parts of the report to print.
struct StatisticsParts {
  bool general = true;
  bool merged = true;
  bool destroyed = true;
  bool arenas = true;
  bool bins = true;
  bool large = true;
  bool mutexes = true;
  bool extents = true;
  bool huge_pages = true;
};

// A MemberPrinter::Filter: whether to print the member of stats.* with this key. `parts`: a StatisticsParts.
bool IsWanted(const char* key, bool is_outermost, const void* parts);

void PrintGeneral(StatisticsEmitter* emitter);
void PrintTotals(StatisticsEmitter* emitter, const Snapshot& snapshot, const StatisticsParts& parts);
// `arena`: the arena of these figures, as in snapshot.h.
void PrintArena(StatisticsEmitter* emitter, size_t arena, const Snapshot& snapshot, const StatisticsParts& parts);

void PrintGlobalMutexes(StatisticsEmitter* emitter);
void PrintArenaMutexes(StatisticsEmitter* emitter);
// The columns of a bin's mutex.
void PrintMutexHeadings(StatisticsEmitter* emitter);
void PrintMutexCells(StatisticsEmitter* emitter);
void PrintHugePageShard(StatisticsEmitter* emitter);

// Events per second, on average since the start. In the first second: all events.
uint64_t PerSecond(uint64_t events, uint64_t uptime_nanoseconds);

// Stands for omitted rows of a table, in which all figures are 0.
inline constexpr char kGap[] = "                     ---\n";

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_JEMALLOC_STATS_PRINT_H_
