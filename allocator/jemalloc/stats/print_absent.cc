// SPDX-License-Identifier: Apache-2.0
//
// The text about parts that heaptap does not have (absent.h). All numbers are 0.
#include <stddef.h>

#include "allocator/jemalloc/absent.h"
#include "allocator/jemalloc/stats/print.h"

namespace heaptap {
namespace {

constexpr StatisticsColumn kMutexName[] = {{"", 21, true}};

constexpr StatisticsColumn kMutexColumns[] = {
    {"n_lock_ops", 16},    {"(#/sec)", 8},  {"n_waiting", 16},      {"(#/sec)", 8},
    {"n_spin_acq", 16},    {"(#/sec)", 8},  {"n_owner_switch", 16}, {"(#/sec)", 8},
    {"total_wait_ns", 16}, {"(#/sec)", 10}, {"max_wait_ns", 16},    {"max_n_thds", 12},
};

template <size_t count>
void PrintMutexes(StatisticsEmitter* emitter, const char* const (&names)[count]) {
  emitter->Headings(kMutexName);
  PrintMutexHeadings(emitter);
  emitter->Text("\n");
  for (const char* name : names) {
    emitter->Cells(kMutexName, {name});
    PrintMutexCells(emitter);
    emitter->Text("\n");
  }
}

constexpr StatisticsColumn kShardColumns[] = {
    {"size", 20},
    {"ind", 4},
    {"npageslabs_huge", 16},
    {"nactive_huge", 16},
    {"ndirty_huge", 16},
    {"npageslabs_nonhuge", 20},
    {"nactive_nonhuge", 20},
    {"ndirty_nonhuge", 20},
    {"nretained_nonhuge", 20},
};

void PrintSlabs(StatisticsEmitter* emitter, const char* name) {
  emitter->Text("  In ").Text(name).Text(
      " slabs:\n"
      "      npageslabs: 0 huge, 0 nonhuge\n"
      "      nactive: 0 huge, 0 nonhuge \n"
      "      ndirty: 0 huge, 0 nonhuge \n"
      "      nretained: 0 huge, 0 nonhuge \n");
}

}  // namespace

void PrintMutexHeadings(StatisticsEmitter* emitter) { emitter->Headings(kMutexColumns); }

void PrintMutexCells(StatisticsEmitter* emitter) {
  emitter->Cells(kMutexColumns, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
}

void PrintGlobalMutexes(StatisticsEmitter* emitter) { PrintMutexes(emitter, absent::kGlobalMutexes); }

void PrintArenaMutexes(StatisticsEmitter* emitter) { PrintMutexes(emitter, absent::kArenaMutexes); }

void PrintHugePageShard(StatisticsEmitter* emitter) {
  emitter->Text(
      "Bytes in small extent cache: 0\n"
      "HPA shard stats:\n"
      "  Purge passes: 0 (0 / sec)\n"
      "  Purges: 0 (0 / sec)\n"
      "  Hugeifies: 0 (0 / sec)\n"
      "  Dehugifies: 0 (0 / sec)\n"
      "\n");
  PrintSlabs(emitter, "full");
  PrintSlabs(emitter, "empty");
  emitter->Text("\n");
  emitter->Headings(kShardColumns);
  emitter->Text("\n").Text(kGap);
}

}  // namespace heaptap
