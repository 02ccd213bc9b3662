// SPDX-License-Identifier: Apache-2.0
//
// heaptap stats: shows the figures of one process, from its books and from its allocator.
#include <stdio.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/base/clock.h"
#include "userspace/base/messages.h"
#include "userspace/base/printable_text.h"
#include "userspace/cli/ask/client.h"
#include "userspace/cli/ask/documents.h"
#include "userspace/cli/ask/find_process.h"
#include "userspace/cli/recording.h"
#include "userspace/cli/show/short_report.h"
#include "userspace/cli/words/command_line.h"
#include "userspace/cli/words/commands.h"
#include "userspace/cli/words/exit_status.h"
#include "userspace/cli/words/json_text.h"
#include "userspace/json/figures_json.h"
#include "userspace/json/json.h"
#include "userspace/process/preloaded.h"
#include "userspace/profile/estimate.h"
#include "userspace/profile/figure_tables.h"
#include "userspace/profile/figures.h"
#include "userspace/report/human.h"

namespace heaptap::cli {
namespace {

using json::Json;
using profile::AllocatorFigures;
using profile::ProcessSummary;
using report::HumanBytes;
using report::HumanCommand;
using report::HumanDuration;
using report::HumanLosses;
using report::kUnknown;
using report::NamedValues;
using Values = std::vector<std::pair<std::string, std::string>>;

struct StatsFlags {
  std::string socket = DefaultSocket();
  std::string process;
  bool json = false;
};

std::string BytesInObjects(double bytes, double objects) {
  return absl::StrCat(HumanBytes(bytes), " in ", profile::ToWhole(objects), " objects");
}

std::string Rate(uint32_t lg_sample) {
  if (lg_sample > HEAPTAP_MAX_LG_SAMPLE) return absl::StrCat(lg_sample);
  return absl::StrCat(lg_sample, " (a sample every ", HumanBytes(static_cast<double>(uint64_t{1} << lg_sample)),
                      " bytes)");
}

void AppendSummary(const profile::ProcessSummary& process, Values& values) {
  values.emplace_back("executable", process.executable.empty() ? kUnknown : base::Printable(process.executable));
  values.emplace_back("recorded since",
                      absl::StrCat(absl::FormatTime(absl::RFC3339_sec, process.recorded_since, absl::UTCTimeZone()),
                                   " (", HumanDuration(base::WallNow() - process.recorded_since), ")"));
  values.emplace_back("live", BytesInObjects(process.live_bytes, process.live_objects));
  if (const std::optional<double> resident = ResidentBytes(process.pid); resident.has_value()) {
    values.emplace_back("resident", HumanBytes(*resident));
  }
  values.emplace_back("peak", HumanBytes(process.peak_bytes));
  values.emplace_back("allocated", BytesInObjects(process.allocated_bytes, process.allocated_objects));
  values.emplace_back("allocation rate", absl::StrCat(HumanBytes(process.allocation_rate), "/s"));
  values.emplace_back("contexts", absl::StrCat(process.contexts));
  values.emplace_back("samples", absl::StrCat(process.samples));
  values.emplace_back("losses", HumanLosses(process.losses));
}

std::string OptionNames(uint32_t options) {
  constexpr std::pair<uint32_t, const char*> kNames[] = {{HEAPTAP_OPTION_PROF, "prof"},
                                                         {HEAPTAP_OPTION_PROF_ACTIVE, "prof_active"},
                                                         {HEAPTAP_OPTION_PROF_LEAK, "prof_leak"},
                                                         {HEAPTAP_OPTION_PROF_FINAL, "prof_final"},
                                                         {HEAPTAP_OPTION_PROF_RAW, "prof_raw"}};
  std::vector<std::string> names;
  for (const auto& [bit, name] : kNames) {
    if ((options & bit) != 0) names.emplace_back(name);
  }
  return names.empty() ? kUnknown : absl::StrJoin(names, " ");
}

void AppendAllocator(const profile::AllocatorFigures& figures, Values& values) {
  values.emplace_back("allocator", figures.name.has_value() ? base::Printable(*figures.name) : kUnknown);
  values.emplace_back("prof.active", figures.active ? "on" : "off");
  values.emplace_back("lg_sample", Rate(figures.lg_sample));
  values.emplace_back("options", OptionNames(figures.options));
  if (!figures.statistics.has_value()) {
    values.emplace_back("statistics", "known to the host only");
    return;
  }
  profile::ForEachFigure<profile::kStatisticsFigures>([&](const auto& row) {
    const uint64_t value = *figures.statistics.*row.value;
    const std::string note = *row.shown.note == '\0' ? "" : absl::StrCat(" (", row.shown.note, ")");
    values.emplace_back(
        row.shown.title,
        absl::StrCat(row.shown.in_bytes ? HumanBytes(static_cast<double>(value)) : absl::StrCat(value), note));
  });
}

void Print(const StatsFlags& flags, Json process, Values values,
           const std::optional<profile::AllocatorFigures>& allocator) {
  if (flags.json) {
    Json document = {{"schema_version", json::kSchemaVersion}, {"process", std::move(process)}};
    document.Set("allocator", allocator.has_value() ? json::ToJson(*allocator) : Json());
    fputs(ToText(document).c_str(), stdout);
    return;
  }
  if (allocator.has_value()) AppendAllocator(*allocator, values);
  fputs(NamedValues(values).c_str(), stdout);
}

int WithoutDaemon(const StatsFlags& flags) {
  const absl::StatusOr<pid_t> pid = FindPreloaded(flags.process);
  if (!pid.ok()) return Report(pid.status());
  absl::StatusOr<process::Preloaded> found = process::PreloadedFinder().Find(*pid);
  if (!found.ok()) return Report(found.status());
  base::Say(absl::StrCat("no daemon at ", base::Printable(flags.socket), ": showing the process's own figures"));
  Json process = {{"pid", *pid}, {"command", found->command}};
  Values values = {{"pid", absl::StrCat(*pid)}, {"command", found->command}};
  if (found->collector != 0) {
    process.Set("collector_pid", found->collector);
    values.emplace_back("recorded by", absl::StrCat("heaptap ", found->collector));
  }
  std::optional<profile::AllocatorFigures> allocator;
  if (found->control_address != 0) allocator = process::AllocatorFiguresOf(found->control);
  Print(flags, std::move(process), std::move(values), allocator);
  return kSuccess;
}

int Stats(const StatsFlags& flags) {
  const Client client(flags.socket);
  absl::StatusOr<ProcessDocument> process = FindProcess(client, flags.process);
  if (IsNoDaemon(process.status())) return WithoutDaemon(flags);
  if (!process.ok()) return Report(process.status());
  const pid_t pid = process->value.pid;
  std::optional<profile::AllocatorFigures> allocator;
  // 409: another allocator without a control block.
  if (absl::StatusOr<profile::AllocatorFigures> figures = GetAllocator(client, pid); figures.ok()) {
    allocator = *figures;
  } else if (!absl::IsFailedPrecondition(figures.status())) {
    return Report(figures.status());
  }
  Values values = {{"pid", absl::StrCat(pid)}, {"command", HumanCommand(process->value.command)}};
  AppendSummary(process->value, values);
  if (!allocator.has_value()) values.emplace_back("lg_sample", Rate(process->value.lg_sample));
  Print(flags, process->json, std::move(values), allocator);
  return kSuccess;
}

}  // namespace

void AddStats(CommandLine& line) {
  Command command = line.AddCommand(
      "stats", "show the figures of a process and its allocator; without a daemon, the allocator's only");
  auto flags = std::make_shared<StatsFlags>();
  AddProcessWord(command, flags->process, "show this process").Required();
  command.AddFlag("--json", flags->json, "print one JSON document instead of text");
  AddSocketOption(command, flags->socket);
  command.Runs([flags] { return Stats(*flags); });
}

}  // namespace heaptap::cli
