// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/ask/find_process.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "userspace/base/clock.h"
#include "userspace/base/printable_text.h"
#include "userspace/cli/words/shell_word.h"
#include "userspace/process/preloaded.h"
#include "userspace/report/human.h"

namespace heaptap::cli {
namespace {

// The error for a process that the daemon does not record: when it ended, if that is known.
absl::Status NotRecorded(const Client& client, const std::string& word, absl::string_view what) {
  const absl::StatusOr<std::vector<EndedDocument>> all = GetEnded(client);
  const std::optional<pid_t> pid = ToPid(word);
  const auto is_meant = [&](const EndedDocument& one) {
    return pid.has_value() ? one.value.summary.pid == *pid : one.value.summary.command == word;
  };
  // The latest comes first.
  const auto ended = all.ok() ? std::ranges::find_if(*all, is_meant) : std::vector<EndedDocument>::const_iterator();
  if (!all.ok() || ended == all->end()) {
    const std::string missing = pid.has_value() ? absl::StrCat("process ", *pid, " is not recorded")
                                                : absl::StrCat("there is no ", what, " ", base::Printable(word));
    return absl::NotFoundError(
        absl::StrCat(missing, "; heaptap list", SocketWords(client.socket()), " shows the recorded ones"));
  }
  const profile::EndedProcess& process = ended->value;
  const absl::Time now = base::WallNow();
  const std::string see =
      process.dump.empty()
          ? absl::StrCat("its last moment: heaptap report ", process.summary.pid, "@last", SocketWords(client.socket()))
          : absl::StrCat("its last dump: heaptap report ", ShellWord(base::Printable(process.dump)));
  return absl::NotFoundError(absl::StrCat(base::Printable(process.summary.command), " (PID ", process.summary.pid,
                                          ") ended ", report::HumanDuration(now - process.ended), " ago (",
                                          report::HowItEnded(process), "); ", see));
}

absl::Status Several(absl::string_view what, const std::string& word, const std::vector<pid_t>& pids) {
  return absl::InvalidArgumentError(absl::StrCat("several ", what, " are called ", base::Printable(word),
                                                 ": choose one of the PIDs ", absl::StrJoin(pids, ", ")));
}

}  // namespace

std::optional<pid_t> ToPid(const std::string& word) {
  pid_t pid = 0;
  if (absl::SimpleAtoi(word, &pid) && pid > 0) return pid;
  return std::nullopt;
}

std::string CheckProcessWord(const std::string& word) {
  double number = 0;
  const bool is_number = absl::SimpleAtod(word, &number);
  return !is_number || ToPid(word).has_value() ? "" : absl::StrCat("'", word, "' is not a PID");
}

Option AddProcessWord(Command command, std::string& process, const std::string& help) {
  return command.Add("PROCESS", process, absl::StrCat(help, ": a PID, or its command"))
      .Type("")
      .Check(CheckProcessWord);
}

absl::StatusOr<ProcessDocument> FindProcess(const Client& client, const std::string& word, absl::string_view what) {
  if (const std::optional<pid_t> pid = ToPid(word); pid.has_value()) {
    absl::StatusOr<ProcessDocument> process = GetProcess(client, *pid);
    return absl::IsNotFound(process.status()) ? NotRecorded(client, word, what) : std::move(process);
  }
  absl::StatusOr<std::vector<ProcessDocument>> processes = GetProcesses(client);
  if (!processes.ok()) return processes.status();
  std::erase_if(*processes, [&](const ProcessDocument& process) { return process.value.command != word; });
  if (processes->size() == 1) return std::move(processes->front());
  if (processes->empty()) return NotRecorded(client, word, what);
  std::vector<pid_t> pids;
  pids.reserve(processes->size());
  for (const ProcessDocument& process : *processes) pids.push_back(process.value.pid);
  return Several("recorded processes", word, pids);
}

absl::StatusOr<pid_t> FindPid(const Client& client, const std::string& word) {
  if (const std::optional<pid_t> pid = ToPid(word); pid.has_value()) return *pid;
  const absl::StatusOr<ProcessDocument> process = FindProcess(client, word);
  if (!process.ok()) return process.status();
  return process->value.pid;
}

absl::StatusOr<pid_t> FindPreloaded(const std::string& word) {
  if (const std::optional<pid_t> pid = ToPid(word); pid.has_value()) return *pid;
  const absl::StatusOr<process::PreloadedFinder::All> all = process::PreloadedFinder().FindAll();
  if (!all.ok()) return all.status();
  std::vector<pid_t> pids;
  for (const process::Preloaded& process : all->processes) {
    if (process.command == word) pids.push_back(process.process.pid());
  }
  if (pids.size() == 1) return pids.front();
  if (!pids.empty()) return Several("processes with a sampled allocator", word, pids);
  return absl::NotFoundError(absl::StrCat("no process with a sampled allocator is called ", base::Printable(word),
                                          "; heaptap list shows those that have one"));
}

}  // namespace heaptap::cli
