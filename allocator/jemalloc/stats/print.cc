// SPDX-License-Identifier: Apache-2.0
#include "allocator/jemalloc/stats/print.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "allocator/core/arena.h"
#include "allocator/jemalloc/snapshot.h"
#include "allocator/jemalloc/stats/members.h"
#include "allocator/platform/system.h"
#include "allocator/process/process.h"

namespace heaptap {
namespace {

struct ReportOptions {
  StatisticsEmitter::Form form = StatisticsEmitter::Form::kText;
  StatisticsParts parts;
};

ReportOptions ParseReportOptions(const char* options) {
  ReportOptions report;
  StatisticsParts& parts = report.parts;
  for (; options != nullptr && *options != '\0'; options++) {
    switch (*options) {
      case 'J':
        report.form = StatisticsEmitter::Form::kJson;
        break;
      case 'g':
        parts.general = false;
        break;
      case 'm':
        parts.merged = false;
        break;
      case 'd':
        parts.destroyed = false;
        break;
      case 'a':
        parts.arenas = false;
        break;
      case 'b':
        parts.bins = false;
        break;
      case 'l':
        parts.large = false;
        break;
      case 'x':
        parts.mutexes = false;
        break;
      case 'e':
        parts.extents = false;
        break;
      case 'h':
        parts.huge_pages = false;
        break;
      default:
        break;
    }
  }
  return report;
}

// Prints the figures of an arena below this title. `scratch`: room for them.
void PrintArenaAs(StatisticsEmitter* emitter, const char* key, const char* title, size_t arena,
                  const StatisticsParts& parts, Snapshot* scratch) {
  LastSnapshot(scratch, arena);
  emitter->BeginObject(key);
  emitter->Text(title);
  PrintArena(emitter, arena, *scratch, parts);
  emitter->EndObject();
}

void PrintSingleArena(StatisticsEmitter* emitter, size_t arena, const StatisticsParts& parts, Snapshot* scratch) {
  char digits[21];
  char* number = digits + sizeof(digits);
  *--number = '\0';
  size_t rest = arena;
  do {
    *--number = static_cast<char>('0' + rest % 10);
    rest /= 10;
  } while (rest != 0);
  const JoinedName beginning("arenas[", number);
  PrintArenaAs(emitter, number, JoinedName(beginning.text(), "]:\n").text(), arena, parts, scratch);
}

// As in jemalloc: the sums are left out if they are those of the only arena that is printed.
void PrintArenas(StatisticsEmitter* emitter, const StatisticsParts& parts, Snapshot* scratch) {
  size_t existing = 0;
  for (size_t i = 0; i < ArenaCount(); i++) existing += FindArena(i) != nullptr;
  if (parts.merged && (existing > 1 || !parts.arenas)) {
    PrintArenaAs(emitter, "merged", "Merged arenas stats:\n", kAllArenas, parts, scratch);
  }
  if (parts.destroyed && HasDestroyedArenas()) {
    PrintArenaAs(emitter, "destroyed", "Destroyed arenas stats:\n", kDestroyedArenas, parts, scratch);
  }
  for (size_t i = 0; parts.arenas && i < ArenaCount(); i++) {
    if (FindArena(i) != nullptr) PrintSingleArena(emitter, i, parts, scratch);
  }
}

// Prints the whole report. `scratch`: room for figures.
void PrintReport(StatisticsEmitter* emitter, const StatisticsParts& parts, Snapshot* scratch) {
  emitter->BeginObject();
  emitter->Text("___ Begin jemalloc statistics ___\n");
  emitter->BeginObject("jemalloc");
  if (parts.general) PrintGeneral(emitter);
  LastSnapshot(scratch);
  PrintTotals(emitter, *scratch, parts);
  if (parts.merged || parts.destroyed || parts.arenas) {
    emitter->BeginObject("stats.arenas");
    PrintArenas(emitter, parts, scratch);
    emitter->EndObject();
  }
  emitter->EndObject();
  emitter->Text("--- End jemalloc statistics ---\n");
  emitter->EndObject();
}

void WriteMessage(void*, const char* text) {
  Message message;  // has room for a piece of the emitter
  message << text;
  message.Print();
}

}  // namespace

bool IsWanted(const char* key, bool is_outermost, const void* parts) {
  struct Part {
    const char* key;
    bool StatisticsParts::*part;
    bool is_outermost = true;
  };
  constexpr Part kParts[] = {
      {"mutexes", &StatisticsParts::mutexes},
      {"mutex", &StatisticsParts::mutexes, false},
      {"bins", &StatisticsParts::bins},
      {"lextents", &StatisticsParts::large},
      {"extents", &StatisticsParts::extents},
      {"hpa_shard", &StatisticsParts::huge_pages},
      {"sec_bytes", &StatisticsParts::huge_pages},
  };
  for (const Part& one : kParts) {
    if (is_outermost == one.is_outermost && strcmp(key, one.key) == 0) {
      return static_cast<const StatisticsParts*>(parts)->*one.part;
    }
  }
  return true;
}

uint64_t PerSecond(uint64_t events, uint64_t uptime_nanoseconds) {
  constexpr uint64_t kSecond = 1000000000;
  return uptime_nanoseconds < kSecond ? events : events / (uptime_nanoseconds / kSecond);
}

void PrintStatistics(WriteFunction write, void* opaque, const char* options) {
  StartProcess();
  ReportOptions report = ParseReportOptions(options);
  if (write == nullptr) write = WriteMessage;
  TakeSnapshot();
  // A snapshot is too large for the stack of a small thread.
  constexpr size_t kBytes = RoundUp(sizeof(Snapshot), kPageSize);
  Snapshot* snapshot = static_cast<Snapshot*>(MapAligned(kBytes, kPageSize));
  if (snapshot == nullptr) {
    Message message;
    message << "<heaptap>: out of memory: malloc_stats_print prints nothing\n";
    message.Print();
    return;
  }
  {
    StatisticsEmitter emitter(report.form, write, opaque);
    PrintReport(&emitter, report.parts, snapshot);
  }
  Unmap(snapshot, kBytes);
}

void PrintStatistics(const char* options) { PrintStatistics(nullptr, nullptr, options); }

void PrintStatisticsAtExit() { PrintStatistics(ProcessConfiguration().stats_print_opts); }

}  // namespace heaptap
