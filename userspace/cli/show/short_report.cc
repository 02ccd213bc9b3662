// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/show/short_report.h"

#include <stdio.h>
#include <unistd.h>

#include <cstdint>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/messages.h"
#include "userspace/base/printable_text.h"
#include "userspace/bpf/entries.h"
#include "userspace/cli/show/report_views.h"
#include "userspace/cli/subjects/local_names.h"
#include "userspace/cli/subjects/profile_source.h"
#include "userspace/cli/words/shell_word.h"
#include "userspace/cli/words/terminal.h"
#include "userspace/process/memory_use.h"

namespace heaptap::cli {
namespace {

constexpr char kAuto[] = "auto";
constexpr char kAlways[] = "always";
constexpr char kNever[] = "never";

}  // namespace

report::Subject DumpSubject(const profile::Profile& profile, const std::string& path) {
  report::Subject subject = {.name = base::Printable(path),
                             .period = profile.period,
                             .several_periods = profile.several_periods,
                             .has_allocated = profile.has_allocated};
  subject.warnings.reserve(profile.warnings.size());
  for (const std::string& warning : profile.warnings) {
    subject.warnings.push_back(base::Printable(warning));
    subject.begins_late |= absl::StrContains(warning, bpf::LossDescription(HEAPTAP_LOSS_BEGINNING));
  }
  const std::string word = ShellWord(subject.name);
  subject.next_commands = {absl::StrCat("heaptap report --tree ", word),
                           absl::StrCat("heaptap report --top --by line ", word)};
  return subject;
}

std::optional<double> ResidentBytes(pid_t pid) {
  const int64_t bytes = process::ResidentBytes(pid);
  return bytes < 0 ? std::nullopt : std::optional(static_cast<double>(bytes));
}

void AddShortReportOption(Command command, std::string& when) {
  command
      .Add("--report", when,
           "show at the end who holds the memory: auto (default; if stderr is a terminal), always or never")
      .OneOf({kAuto, kAlways, kNever});
}

bool WantsShortReport(const std::string& when) {
  return when == kAlways || (when != kNever && isatty(STDERR_FILENO) == 1);
}

void SayShortReport(const std::string& path, const RecordedProcess& process) {
  const absl::StatusOr<Dump> dump = ReadDump(path);
  if (!dump.ok()) {
    base::Say(dump.status().message());
    return;
  }
  const profile::Profile& profile = dump->profile;
  const LocalNames names(profile);
  const profile::FindSourceFrames find = names.Find();
  report::Subject subject = DumpSubject(profile, path);
  if (process.pid > 0) subject.resident_bytes = ResidentBytes(process.pid);
  subject.recorded_for = process.recorded_for;
  const report::NamedProfile named(profile, find);
  if (named.total().live.samples == 0) subject.next_commands.emplace_back("heaptap run --high-water -- ...");
  const absl::StatusOr<std::string> text = ShortView(
      {.profile = profile, .find = find, .named = named, .subject = subject, .width = TerminalWidth(STDERR_FILENO)});
  if (text.ok()) fprintf(stderr, "\n%s", text->c_str());
}

}  // namespace heaptap::cli
