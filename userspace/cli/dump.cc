// SPDX-License-Identifier: Apache-2.0
//
// heaptap dump: tells the daemon to write dumps, or fetches and writes them itself.
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "userspace/base/messages.h"
#include "userspace/base/printable_text.h"
#include "userspace/cli/ask/client.h"
#include "userspace/cli/ask/documents.h"
#include "userspace/cli/ask/find_process.h"
#include "userspace/cli/recording.h"
#include "userspace/cli/subjects/local_names.h"
#include "userspace/cli/subjects/profile_source.h"
#include "userspace/cli/words/command_line.h"
#include "userspace/cli/words/commands.h"
#include "userspace/cli/words/exit_status.h"
#include "userspace/cli/words/whole_file.h"
#include "userspace/formats/jeprof_symbolized.h"
#include "userspace/formats/offered.h"

namespace heaptap::cli {
namespace {

constexpr char kPid[] = "%p";
constexpr char kSymbolized[] = "jeprof";

struct DumpFlags {
  std::string socket = DefaultSocket();
  std::vector<std::string> processes;
  bool all = false;
  std::string file;
  std::string format;
  bool symbolized = false;
  NamePlaces places;
};

absl::Status CheckFlags(const DumpFlags& flags) {
  if (flags.all == !flags.processes.empty()) {
    return absl::InvalidArgumentError("dump: expected processes or --all");
  }
  if (flags.file.empty() && !flags.format.empty()) {
    return absl::InvalidArgumentError(
        "--format and --symbolized need -o FILE: dumps in the daemon's folder have the daemon's format");
  }
  if (flags.places.debuginfod && flags.format != kSymbolized) {
    return absl::InvalidArgumentError("--debuginfod needs --symbolized: other dumps have no names");
  }
  if (!flags.file.empty() && (flags.all || flags.processes.size() > 1) && !absl::StrContains(flags.file, kPid)) {
    return absl::InvalidArgumentError(
        absl::StrCat("-o: the name for several dumps must contain ", kPid, ", which is replaced by the PID"));
  }
  return CheckPlaces(flags.places);
}

// Reports an error; without a daemon, also what to do instead.
int ReportDump(const absl::Status& status) {
  if (!IsNoDaemon(status)) return Report(status);
  base::Say(absl::StrCat(status.message(), "; to record one process without a daemon, use heaptap attach -p PID"));
  return kFailure;
}

int PrintPath(const absl::StatusOr<std::string>& path) {
  if (!path.ok()) return ReportDump(path.status());
  puts(base::Printable(*path).c_str());
  if (access(path->c_str(), R_OK) != 0 && errno == EACCES) {
    base::Say("only root can read the daemon's folder; use -o FILE to write a dump with your own rights");
  }
  return kSuccess;
}

// Writes a dump with symbols whose names are looked up here, because the daemon asks no servers.
absl::Status FetchAndName(const Client& client, const DumpFlags& flags, pid_t pid) {
  const absl::StatusOr<ProcessDocument> process = GetProcess(client, pid);
  if (!process.ok()) return process.status();
  const absl::StatusOr<profile::Profile> profile = FetchProfile(client, pid);
  if (!profile.ok()) return profile.status();
  const LocalNames names(*profile, flags.places);
  SayMissing(names);
  return WriteWholeFile(absl::StrReplaceAll(flags.file, {{kPid, absl::StrCat(pid)}}),
                        formats::JeprofSymbolized(*profile, process->value.executable, names.Find()));
}

absl::Status Fetch(const Client& client, const DumpFlags& flags, pid_t pid) {
  if (flags.places.debuginfod) return FetchAndName(client, flags, pid);
  std::string target = absl::StrCat("/pid/", pid, "/heap");
  if (!flags.format.empty()) absl::StrAppend(&target, "?format=", flags.format);
  absl::StatusOr<std::string> contents = client.GetDump(target);
  if (!contents.ok()) return contents.status();
  // A dump of any format has a header.
  if (contents->empty()) return client.Unexpected(target, "an empty dump");
  return WriteWholeFile(absl::StrReplaceAll(flags.file, {{kPid, absl::StrCat(pid)}}), *contents);
}

int DumpAll(const Client& client) {
  absl::StatusOr<std::vector<Dumped>> dumps = PostDumps(client);
  if (!dumps.ok()) return ReportDump(dumps.status());
  if (dumps->empty()) return Report(absl::NotFoundError("the daemon records no processes"));
  int status = kSuccess;
  for (const Dumped& dumped : *dumps) {
    if (PrintPath(dumped.path) != kSuccess) status = kFailure;
  }
  return status;
}

int WriteDump(const DumpFlags& flags) {
  if (absl::Status status = CheckFlags(flags); !status.ok()) return Report(status);
  const Client client(flags.socket);
  if (flags.all && flags.file.empty()) return DumpAll(client);
  std::vector<pid_t> pids;
  int first_failure = kSuccess;
  for (const std::string& word : flags.processes) {
    const absl::StatusOr<pid_t> pid = FindPid(client, word);
    if (pid.ok()) {
      pids.push_back(*pid);
    } else if (const int status = ReportDump(pid.status()); first_failure == kSuccess) {
      first_failure = status;
    }
  }
  if (flags.all) {
    absl::StatusOr<std::vector<ProcessDocument>> processes = GetProcesses(client);
    if (!processes.ok()) return ReportDump(processes.status());
    if (processes->empty()) return Report(absl::NotFoundError("the daemon records no processes"));
    for (const ProcessDocument& process : *processes) pids.push_back(process.value.pid);
  }
  for (const pid_t pid : pids) {
    if (flags.all) {
      const absl::Status fetched = Fetch(client, flags, pid);
      // The process has ended since it was listed.
      if (absl::IsNotFound(fetched)) continue;
      const int status = ReportDump(fetched);
      if (first_failure == kSuccess) first_failure = status;
      continue;
    }
    const int status = flags.file.empty() ? PrintPath(PostDump(client, pid)) : ReportDump(Fetch(client, flags, pid));
    if (first_failure == kSuccess) first_failure = status;
  }
  return first_failure;
}

std::vector<std::string> FormatNames() {
  std::vector<std::string> names;
  for (const formats::OfferedFormat& format : formats::OfferedFormats()) names.emplace_back(format.name);
  return names;
}

std::string FormatsForPeople() {
  std::string text;
  for (const formats::OfferedFormat& format : formats::OfferedFormats()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", format.name, " (", text.empty() ? "default; " : "", format.use,
                    ")");
  }
  return text;
}

}  // namespace

void AddDump(CommandLine& line) {
  Command command = line.AddCommand("dump", "write dumps of processes that the daemon records");
  auto flags = std::make_shared<DumpFlags>();
  const Option processes = command.Add("PROCESS", flags->processes, "dump these processes: PIDs, or commands")
                               .Type("")
                               .Check(CheckProcessWord);
  command.AddFlag("--all", flags->all, "dump all processes that the daemon records").Excludes(processes);
  command
      .Add("-o,--output", flags->file,
           "write the dump to FILE with your own rights; - is stdout, %p the PID (default: the daemon writes it to "
           "its folder, and heaptap prints the path)")
      .Type("FILE");
  const Option format =
      command.Add("--format", flags->format, absl::StrCat("choose the format, with -o: ", FormatsForPeople()))
          .OneOf(FormatNames());
  command
      .AddFlag("--symbolized", flags->symbolized,
               "write a dump that needs no files of the program: the same as --format jeprof")
      .Excludes(format);
  AddDebuginfodOption(command, flags->places);
  AddSocketOption(command, flags->socket);
  command.Runs([flags] {
    if (flags->symbolized) flags->format = kSymbolized;
    return WriteDump(*flags);
  });
}

}  // namespace heaptap::cli
