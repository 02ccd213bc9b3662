// SPDX-License-Identifier: Apache-2.0
//
// What jemalloc tells about parts of itself that heaptap does not have. The numbers are 0, and are printed since
// readers of such reports expect them.
#include "allocator/jemalloc/stats/print.h"

namespace heaptap {
namespace {

constexpr StatisticsColumn kMutexName[] = {{"", 21, true}};

constexpr StatisticsColumn kMutexColumns[] = {
    {"n_lock_ops", 16},    {"(#/sec)", 8},  {"n_waiting", 16},      {"(#/sec)", 8},
    {"n_spin_acq", 16},    {"(#/sec)", 8},  {"n_owner_switch", 16}, {"(#/sec)", 8},
    {"total_wait_ns", 16}, {"(#/sec)", 10}, {"max_wait_ns", 16},    {"max_n_thds", 12},
};

constexpr const char* kMutexKeys[] = {"num_ops",         "num_wait",      "num_spin_acq", "num_owner_switch",
                                      "total_wait_time", "max_wait_time", "max_num_thds"};

constexpr const char* kGlobalMutexes[] = {
    "background_thread", "max_per_bg_thd",   "ctl",       "prof", "prof_thds_data", "prof_dump",
    "prof_recent_alloc", "prof_recent_dump", "prof_stats"};

constexpr const char* kArenaMutexes[] = {
    "large",       "extent_avail", "extents_dirty", "extents_muzzy", "extents_retained", "decay_dirty",
    "decay_muzzy", "base",         "tcache_list",   "hpa_shard",     "hpa_shard_grow",   "hpa_sec"};

template <size_t count>
void PrintMutexes(StatisticsEmitter* emitter, const char* const (&names)[count]) {
  emitter->Headings(kMutexName);
  PrintMutexHeadings(emitter);
  emitter->Text("\n");
  emitter->BeginObject("mutexes");
  for (const char* name : names) {
    emitter->Cells(kMutexName, {name});
    PrintMutexCells(emitter);
    emitter->Text("\n");
    PrintMutexMember(emitter, name);
  }
  emitter->EndObject();
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

constexpr unsigned kShardClasses = 64;

void PrintSlabs(StatisticsEmitter* emitter, const char* key, const char* name) {
  emitter->Text("  In ").Text(name).Text(
      " slabs:\n"
      "      npageslabs: 0 huge, 0 nonhuge\n"
      "      nactive: 0 huge, 0 nonhuge \n"
      "      ndirty: 0 huge, 0 nonhuge \n"
      "      nretained: 0 huge, 0 nonhuge \n");
  emitter->BeginObject(key);
  for (const char* member :
       {"npageslabs_huge", "nactive_huge", "npageslabs_nonhuge", "nactive_nonhuge", "ndirty_nonhuge"}) {
    emitter->Member(member, 0);
  }
  emitter->EndObject();
}

}  // namespace

void PrintMutexHeadings(StatisticsEmitter* emitter) { emitter->Headings(kMutexColumns); }

void PrintMutexCells(StatisticsEmitter* emitter) {
  emitter->Cells(kMutexColumns, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
}

void PrintMutexMember(StatisticsEmitter* emitter, const char* key) {
  emitter->BeginObject(key);
  for (const char* member : kMutexKeys) emitter->Member(member, 0);
  emitter->EndObject();
}

void PrintGlobalMutexes(StatisticsEmitter* emitter) { PrintMutexes(emitter, kGlobalMutexes); }

void PrintArenaMutexes(StatisticsEmitter* emitter) { PrintMutexes(emitter, kArenaMutexes); }

void PrintHugePageShard(StatisticsEmitter* emitter) {
  emitter->Entry("sec_bytes", "Bytes in small extent cache", 0);
  emitter->Text(
      "HPA shard stats:\n"
      "  Purge passes: 0 (0 / sec)\n"
      "  Purges: 0 (0 / sec)\n"
      "  Hugeifies: 0 (0 / sec)\n"
      "  Dehugifies: 0 (0 / sec)\n"
      "\n");
  emitter->BeginObject("hpa_shard");
  for (const char* member : {"npurge_passes", "npurges", "nhugifies", "ndehugifies"}) emitter->Member(member, 0);
  PrintSlabs(emitter, "full_slabs", "full");
  PrintSlabs(emitter, "empty_slabs", "empty");
  emitter->Text("\n");
  emitter->Headings(kShardColumns);
  emitter->Text("\n").Text(kGap);
  emitter->BeginArray("nonfull_slabs");
  for (unsigned i = 0; i < kShardClasses; i++) {
    emitter->BeginObject();
    for (const char* member : {"npageslabs_huge", "nactive_huge", "ndirty_huge", "npageslabs_nonhuge",
                               "nactive_nonhuge", "ndirty_nonhuge"}) {
      emitter->Member(member, 0);
    }
    emitter->EndObject();
  }
  emitter->EndArray();
  emitter->EndObject();
}

}  // namespace heaptap
