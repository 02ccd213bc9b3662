// SPDX-License-Identifier: Apache-2.0
#include <stddef.h>

#include "allocator/jemalloc/mallctl/mallctl.h"
#include "allocator/jemalloc/mallctl/tree.h"
#include "allocator/jemalloc/stats/members.h"
#include "allocator/jemalloc/stats/print.h"
#include "allocator/process/options.h"

namespace heaptap {
namespace {

// Prints opt.NAME, with the current value if the option is only the initial one.
void PrintOption(StatisticsEmitter* emitter, const Option& option) {
  const JoinedName name("opt.", option.name);
  const StatisticsValue value = ReadValue(name.text());
  if (option.current != nullptr) {
    emitter->Entry(option.name, name.text(), value, option.current, ReadValue(option.current));
  } else if (value.exists()) {
    emitter->Entry(option.name, name.text(), value);
  }
}

}  // namespace

void PrintGeneral(StatisticsEmitter* emitter) {
  MemberPrinter members(emitter);
  emitter->Entry("version", "Version", ReadValue("version"));
  emitter->BeginSection("config", "Build-time option settings");
  members.Print(kConfigNames, 1, "config.");
  emitter->EndSection();
  emitter->BeginSection("opt", "Run-time option settings");
  for (size_t i = 0; i < kOptionCount; i++) {
    if (kOptions[i].readable && kOptions[i].printed) PrintOption(emitter, kOptions[i]);
  }
  emitter->EndSection();
  emitter->BeginSection("prof", "Profiling settings");
  members.Print(kProfNames, 1, "prof.");
  emitter->EndSection();
  emitter->BeginObject("arenas");
  members.Print(kArenasNames, 1);
  emitter->EndObject();
}

void PrintTotals(StatisticsEmitter* emitter, const Snapshot& snapshot, const StatisticsParts& parts) {
  emitter->BeginObject("stats");
  MemberPrinter(emitter, &snapshot, IsWanted, &parts).Print(kStatisticsNames, 1);
  emitter->Text("Allocated: ").Text(snapshot.allocated).Text(", active: ").Text(snapshot.active);
  emitter->Text(", metadata: ").Text(snapshot.metadata).Text(" (n_thp 0), resident: ").Text(snapshot.resident);
  emitter->Text(", mapped: ").Text(snapshot.mapped).Text(", retained: ").Text(snapshot.retained).Text("\n");
  emitter->Text("Count of realloc(non-null-ptr, 0) calls: 0\n");
  emitter->Text("Background threads: 0, num_runs: 0, run_interval: 0 ns\n");
  if (parts.mutexes) PrintGlobalMutexes(emitter);
  emitter->EndObject();
}

}  // namespace heaptap
