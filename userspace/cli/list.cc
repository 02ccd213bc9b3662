// SPDX-License-Identifier: Apache-2.0
//
// heaptap list: lists recorded processes; without a daemon, those with a sampled allocator.
#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/messages.h"
#include "userspace/base/printable_text.h"
#include "userspace/cli/ask/client.h"
#include "userspace/cli/ask/documents.h"
#include "userspace/cli/show/short_report.h"
#include "userspace/cli/words/command_line.h"
#include "userspace/cli/words/commands.h"
#include "userspace/cli/words/exit_status.h"
#include "userspace/cli/words/json_text.h"
#include "userspace/cli/words/terminal.h"
#include "userspace/daemon/unserved.h"
#include "userspace/json/figures_json.h"
#include "userspace/json/json.h"
#include "userspace/process/control_block.h"
#include "userspace/process/handle.h"
#include "userspace/process/preloaded.h"
#include "userspace/profile/figure_tables.h"
#include "userspace/profile/figures.h"
#include "userspace/report/human.h"

namespace heaptap::cli {
namespace {

using json::Json;
using process::Preloaded;
using profile::EndedProcess;
using profile::ProcessSummary;
using report::HumanBytes;
using report::HumanCommand;
using report::HumanDuration;
using report::HumanLosses;
using report::kUnknown;
using report::Table;

struct ListFlags {
  std::string socket = DefaultSocket();
  bool ended = false;
  bool json = false;
};

void PrintJson(const Json& document) { fputs(ToText(document).c_str(), stdout); }

template <typename T>
Json JsonOf(const char* name, const std::vector<Document<T>>& documents) {
  Json list = Json::List();
  for (const Document<T>& document : documents) list.Add(document.json);
  return {{"schema_version", json::kSchemaVersion}, {name, std::move(list)}};
}

std::string OnOrOff(std::optional<bool> active) {
  if (!active.has_value()) return kUnknown;
  return *active ? "on" : "off";
}

// A figure as people read it.
std::string Text(const profile::Shown& how, const auto& value) {
  using Value = std::decay_t<decltype(value)>;
  if constexpr (std::is_same_v<Value, std::string>) {
    return HumanCommand(value);
  } else if constexpr (std::is_same_v<Value, std::optional<std::string>>) {
    return value.has_value() ? base::Printable(*value) : kUnknown;
  } else if constexpr (std::is_same_v<Value, std::optional<bool>>) {
    return OnOrOff(value);
  } else if constexpr (std::is_same_v<Value, absl::Time>) {
    return HumanDuration(base::WallNow() - value);
  } else if constexpr (std::is_same_v<Value, profile::CountsByName>) {
    return HumanLosses(value);
  } else if constexpr (std::is_arithmetic_v<Value>) {
    return how.in_bytes ? HumanBytes(value) : absl::StrCat(value);
  } else {
    return value.has_value() ? Text(how, *value) : kUnknown;
  }
}

// The columns that are left out where the terminal is narrow, in this order: people ask least for the first ones.
constexpr absl::string_view kSpared[] = {"CONTEXTS", "SAMPLES", "LG", "ACTIVE", "ALLOCATOR", "RATE/s", "UPTIME"};

int SpareOf(absl::string_view title) { return static_cast<int>(std::end(kSpared) - std::ranges::find(kSpared, title)); }

// Resident memory stands beside live memory, with which people compare it. It is read now; the recording's own figure
// may be older.
constexpr char kBeforeResident[] = "live_bytes";

std::string ResidentText(pid_t pid) {
  const std::optional<double> resident = ResidentBytes(pid);
  return resident.has_value() ? HumanBytes(*resident) : kUnknown;
}

void PrintProcesses(std::vector<ProcessDocument> documents) {
  std::stable_sort(documents.begin(), documents.end(), [](const ProcessDocument& a, const ProcessDocument& b) {
    return a.value.live_bytes > b.value.live_bytes;
  });
  std::vector<Table::Column> columns;
  profile::ForEachFigure<profile::kProcessFigures>([&](const auto& row) {
    using Value = std::decay_t<decltype(ProcessSummary().*row.value)>;
    constexpr bool kIsNumber = std::is_arithmetic_v<Value> || std::is_same_v<Value, absl::Time>;
    if (row.shown.title != nullptr) columns.push_back({row.shown.title, kIsNumber, SpareOf(row.shown.title)});
    if (absl::string_view(row.name) == kBeforeResident) columns.push_back({"RSS", true});
  });
  Table table(std::move(columns));
  for (const ProcessDocument& document : documents) {
    std::vector<std::string> cells;
    profile::ForEachFigure<profile::kProcessFigures>([&](const auto& row) {
      if (row.shown.title != nullptr) cells.push_back(Text(row.shown, document.value.*row.value));
      if (absl::string_view(row.name) == kBeforeResident) cells.push_back(ResidentText(document.value.pid));
    });
    table.Add(std::move(cells));
  }
  fputs(table.Text(TerminalWidth(STDOUT_FILENO)).c_str(), stdout);
}

void PrintEnded(const std::vector<EndedDocument>& documents) {
  Table table({{"PID", true},
               {"COMMAND"},
               {"ENDED", true},
               {"HOW"},
               {"LIVE", true},
               {"PEAK", true},
               {"SAMPLES", true},
               {"LOSSES", true},
               {"DUMP"}});
  const absl::Time now = base::WallNow();
  for (const EndedDocument& document : documents) {
    const profile::EndedProcess& process = document.value;
    const profile::ProcessSummary& summary = process.summary;
    table.Add({absl::StrCat(summary.pid), HumanCommand(summary.command),
               absl::StrCat(HumanDuration(now - process.ended), " ago"), report::HowItEnded(process),
               HumanBytes(summary.live_bytes), HumanBytes(summary.peak_bytes), absl::StrCat(summary.samples),
               HumanLosses(summary.losses), process.dump.empty() ? kUnknown : base::Printable(process.dump)});
  }
  fputs(table.Text().c_str(), stdout);
}

uint32_t RateInEffect(const heaptap_control& control) {
  return control.collector_lg_sample == HEAPTAP_NO_RATE ? control.lg_sample : control.collector_lg_sample;
}

void PrintPreloaded(const std::vector<process::Preloaded>& processes) {
  Table table(
      {{"PID", true}, {"COMMAND"}, {"LG", true}, {"ACTIVE"}, {"MAPPED", true}, {"COLLECTOR", true}, {"ALLOCATOR"}});
  for (const process::Preloaded& process : processes) {
    const bool has_control = process.control_address != 0;
    const heaptap_control& control = process.control;
    const bool has_statistics = has_control && !process::IsGuest(control);
    table.Add({absl::StrCat(process.process.pid()), HumanCommand(process.command),
               has_control ? absl::StrCat(RateInEffect(control)) : kUnknown,
               OnOrOff(has_control ? std::optional(control.active != 0) : std::nullopt),
               has_statistics ? HumanBytes(static_cast<double>(control.statistics.mapped)) : kUnknown,
               process.collector != 0 ? absl::StrCat(process.collector) : kUnknown,
               has_control ? process::AllocatorName(control) : kUnknown});
  }
  fputs(table.Text().c_str(), stdout);
}

// Unknown fields are omitted.
void PrintPreloadedJson(const std::vector<process::Preloaded>& processes) {
  Json list = Json::List();
  for (const process::Preloaded& process : processes) {
    Json entry = {{"pid", process.process.pid()}, {"command", process.command}};
    if (process.control_address != 0) {
      entry.Set("lg_sample", RateInEffect(process.control));
      entry.Set("active", process.control.active != 0);
      entry.Set("allocator", process::AllocatorName(process.control));
      if (!process::IsGuest(process.control)) entry.Set("mapped", process.control.statistics.mapped);
    }
    if (process.collector != 0) entry.Set("collector_pid", process.collector);
    list.Add(std::move(entry));
  }
  PrintJson({{"schema_version", json::kSchemaVersion}, {"processes", std::move(list)}});
}

// Whether a daemon has left a recording in the default place. False if this user may not look there.
bool HasRecordingInKernel() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(kDefaultPinFolder), closedir);
  while (const dirent* entry = folder == nullptr ? nullptr : readdir(folder.get())) {
    if (entry->d_name[0] != '.') return true;
  }
  return false;
}

int ListPreloaded(const ListFlags& flags) {
  absl::StatusOr<process::PreloadedFinder::All> all = process::PreloadedFinder().FindAll();
  if (!all.ok()) return Report(all.status());
  std::string line =
      absl::StrCat("no daemon at ", base::Printable(flags.socket),
                   all->processes.empty() ? ", and no process has a sampled allocator"
                                          : ": listing processes with a sampled allocator, with their own figures");
  if (all->refused > 0) {
    absl::StrAppend(&line, "; no permission to inspect ", all->refused, " other", all->refused == 1 ? "" : "s");
    if (const absl::Status scope = process::CheckPtraceScope(); !scope.ok()) {
      absl::StrAppend(&line, ": ", scope.message());
    }
  }
  base::Say(line);
  if (HasRecordingInKernel()) {
    base::Say("a recording continues in the kernel: heaptap daemon takes it over, heaptap daemon --end ends it");
  }
  if (flags.json) {
    PrintPreloadedJson(all->processes);
  } else {
    PrintPreloaded(all->processes);
  }
  return kSuccess;
}

int ListEnded(const Client& client, bool as_json) {
  absl::StatusOr<std::vector<EndedDocument>> ended = GetEnded(client);
  if (!ended.ok()) return Report(ended.status());
  if (as_json) {
    PrintJson(JsonOf("ended", *ended));
  } else {
    PrintEnded(*ended);
    if (ended->empty()) base::Say("no recorded process has ended");
  }
  return kSuccess;
}

// `socket_given`: a daemon there is expected.
int List(const ListFlags& flags, bool socket_given) {
  const Client client(flags.socket);
  if (flags.ended) return ListEnded(client, flags.json);
  DaemonState state;
  absl::StatusOr<std::vector<ProcessDocument>> processes = GetProcesses(client, &state);
  if (IsNoDaemon(processes.status()) && !socket_given) return ListPreloaded(flags);
  if (!processes.ok()) return Report(processes.status());
  if (flags.json) {
    Json document = JsonOf("processes", *processes);
    document.Set("failing", json::ToJson(state.failing));
    PrintJson(document);
    return kSuccess;
  }
  if (processes->empty()) {
    base::Say(geteuid() == 0 ? "the daemon records no process" : "the daemon records no process of yours");
  }
  PrintProcesses(*std::move(processes));
  for (const auto& [task, since] : state.failing) {
    base::Say(absl::StrCat("the daemon fails at a task for ", HumanDuration(base::WallNow() - since), " (",
                           base::Printable(task), "); its log says why"));
  }
  if (state.is_restricted) return kSuccess;  // others are not expected
  for (const daemon::UnservedProcess& process : daemon::FindUnserved()) {
    base::Say(absl::StrCat("not recorded: process ", process.pid, " (", process.command,
                           ") has no library of heaptap, although its LD_PRELOAD names one, because ", process.why));
  }
  return kSuccess;
}

}  // namespace

void AddList(CommandLine& line) {
  Command command = line.AddCommand(
      "list", "list the processes that the daemon records; without a daemon, those with a sampled allocator");
  auto flags = std::make_shared<ListFlags>();
  command.AddFlag("--ended", flags->ended, "list the processes that ended most recently instead");
  command.AddFlag("--json", flags->json, "print one JSON document instead of text");
  AddSocketOption(command, flags->socket);
  command.Runs(
      [flags, command] { return List(*flags, command.IsGiven("--socket") || flags->socket != kDefaultSocket); });
}

}  // namespace heaptap::cli
