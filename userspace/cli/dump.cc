// SPDX-License-Identifier: Apache-2.0
//
// heaptap dump: have the daemon write dumps, or write them oneself.
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "userspace/cli/client.h"
#include "userspace/cli/command_line.h"
#include "userspace/cli/commands.h"
#include "userspace/cli/documents.h"
#include "userspace/cli/exit_status.h"
#include "userspace/cli/recording.h"
#include "userspace/cli/whole_file.h"
#include "userspace/export/printable_text.h"
#include "userspace/service/messages.h"

namespace heaptap::cli {
namespace {

constexpr char kPid[] = "%p";

struct DumpFlags {
  std::string socket = kDefaultSocket;
  std::vector<pid_t> pids;
  bool all = false;
  std::string file;
  std::string format;
};

absl::Status CheckFlags(const DumpFlags& flags) {
  if (flags.all == !flags.pids.empty()) return absl::InvalidArgumentError("dump: either PIDs or --all are needed");
  if (flags.file.empty() && !flags.format.empty()) {
    return absl::InvalidArgumentError("--format: the daemon's own dumps have its format; -o FILE writes another one");
  }
  if (!flags.file.empty() && (flags.all || flags.pids.size() > 1) && !absl::StrContains(flags.file, kPid)) {
    return absl::InvalidArgumentError(
        absl::StrCat("-o: a name for several dumps needs ", kPid, " in it, which becomes the PID"));
  }
  return absl::OkStatus();
}

// Says what went wrong, with what can be done where there is no daemon.
int ReportDump(const absl::Status& status) {
  if (!IsNoDaemon(status)) return Report(status);
  service::Say(absl::StrCat(status.message(), ". One process can be recorded without: heaptap attach -p PID"));
  return kFailure;
}

int PrintPath(const absl::StatusOr<std::string>& path) {
  if (!path.ok()) return ReportDump(path.status());
  puts(exporter::Printable(*path).c_str());
  if (access(path->c_str(), R_OK) != 0 && errno == EACCES) {
    service::Say("the daemon's folder is root's; with -o FILE the dump is written with your own rights");
  }
  return kSuccess;
}

absl::Status Fetch(const Client& client, const DumpFlags& flags, pid_t pid) {
  std::string target = absl::StrCat("/pid/", pid, "/heap");
  if (!flags.format.empty()) absl::StrAppend(&target, "?format=", flags.format);
  absl::StatusOr<std::string> contents = client.GetDump(target);
  if (!contents.ok()) return contents.status();
  // Writers of all formats have a header.
  if (contents->empty()) return client.Unexpected(target, "an empty dump");
  return WriteWholeFile(absl::StrReplaceAll(flags.file, {{kPid, absl::StrCat(pid)}}), *contents);
}

int DumpAll(const Client& client) {
  absl::StatusOr<std::vector<Dumped>> dumps = PostDumps(client);
  if (!dumps.ok()) return ReportDump(dumps.status());
  if (dumps->empty()) return Report(absl::NotFoundError("the daemon records no process"));
  int status = kSuccess;
  for (const Dumped& dumped : *dumps) {
    if (PrintPath(dumped.path) != kSuccess) status = kFailure;
  }
  return status;
}

int Dump(const DumpFlags& flags) {
  if (absl::Status status = CheckFlags(flags); !status.ok()) return Report(status);
  const Client client(flags.socket);
  if (flags.all && flags.file.empty()) return DumpAll(client);
  std::vector<pid_t> pids = flags.pids;
  if (flags.all) {
    absl::StatusOr<std::vector<ProcessDocument>> processes = GetProcesses(client);
    if (!processes.ok()) return ReportDump(processes.status());
    if (processes->empty()) return Report(absl::NotFoundError("the daemon records no process"));
    for (const ProcessDocument& process : *processes) pids.push_back(process.value.pid);
  }
  int first_failure = kSuccess;
  for (const pid_t pid : pids) {
    if (flags.all) {
      const absl::Status fetched = Fetch(client, flags, pid);
      // It has ended since it was listed.
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

}  // namespace

void AddDump(CommandLine& line) {
  Command command = line.AddCommand("dump", "write dumps of processes that the daemon records");
  auto flags = std::make_shared<DumpFlags>();
  const Option pids = command.Add("PID", flags->pids, "the processes").Type("").AboveZero();
  command.AddFlag("--all", flags->all, "all processes that the daemon records").Excludes(pids);
  command
      .Add("-o,--output", flags->file,
           "write the dump here, with your own rights; - is stdout, %p the PID (default: the daemon writes it "
           "into its folder, and the path is printed)")
      .Type("FILE");
  command
      .Add("--format", flags->format,
           "with -o: heap_v2 (default): jemalloc's, for jeprof; gperftools; pprof: for go tool pprof; "
           "collapsed: for flame graphs; jeprof: with symbols, for jeprof on any machine")
      .OneOf({"heap_v2", "gperftools", "pprof", "collapsed", "jeprof"});
  AddSocketOption(command, flags->socket);
  command.Runs([flags] { return Dump(*flags); });
}

}  // namespace heaptap::cli
