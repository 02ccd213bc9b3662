// SPDX-License-Identifier: Apache-2.0
//
// malloc_stats_print: the statistics as a report, in jemalloc's text form or as JSON with jemalloc's keys, so that what
// reads jemalloc's reads ours. The JSON is what mallctl's tree shows (members.h); the tables of the text are made here.
// There is one arena, and nothing that jemalloc has several kinds of; figures about what heaptap does not have (its
// mutexes, huge page shards, background threads) are there and are 0.
//
//   PrintStatistics             print.cc: what `options` ask for, and in which form
//     PrintGeneral              version, config, opt, prof, arenas
//     PrintTotals               stats
//     PrintArena                stats.arenas.<i>: totals, bins, large, extents
//       PrintArenaMutexes, PrintHugePageShard
//
// Any thread, no lock held. Allocates nothing from the heap.
#ifndef HEAPTAP_ALLOCATOR_JEMALLOC_STATS_PRINT_H_
#define HEAPTAP_ALLOCATOR_JEMALLOC_STATS_PRINT_H_

#include "allocator/jemalloc/snapshot.h"
#include "allocator/jemalloc/stats/emitter.h"

namespace heaptap {

// Takes a new snapshot and prints it. `write` nullptr: malloc_message, or else stderr. `options`, which may be nullptr:
// letters as jemalloc has them; J is JSON, each other letter leaves something out: g general information, m and d
// merged and destroyed arenas, a single arenas, b bins, l large sizes, x mutexes, e extents, h huge page shards.
void PrintStatistics(WriteFunction write, void* opaque, const char* options);

// To malloc_message or stderr: for stats_interval, and the exit handler of stats_print.
void PrintStatistics(const char* options);
void PrintStatisticsAtExit();

// For the files print_*.cc. ---------------------------------------------------------------------------------

// What is to be left in.
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

// Whether `parts`, a StatisticsParts, has the member of stats.* with this key (MemberPrinter::Filter).
bool IsWanted(const char* key, bool is_outermost, const void* parts);

void PrintGeneral(StatisticsEmitter* emitter);
void PrintTotals(StatisticsEmitter* emitter, const Snapshot& snapshot, const StatisticsParts& parts);
void PrintArena(StatisticsEmitter* emitter, const Snapshot& snapshot, const StatisticsParts& parts);

void PrintGlobalMutexes(StatisticsEmitter* emitter);
void PrintArenaMutexes(StatisticsEmitter* emitter);
// The columns of a bin.
void PrintMutexHeadings(StatisticsEmitter* emitter);
void PrintMutexCells(StatisticsEmitter* emitter);
void PrintHugePageShard(StatisticsEmitter* emitter);

// Events in a second, on average since the start; within the first second, all of them.
uint64_t PerSecond(uint64_t events, uint64_t uptime_nanoseconds);

// Stands in text for rows that are left out since there is nothing in them.
inline constexpr char kGap[] = "                     ---\n";

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_JEMALLOC_STATS_PRINT_H_
