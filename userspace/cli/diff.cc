// SPDX-License-Identifier: Apache-2.0
//
// heaptap diff: shows what grew between two dumps, or in a running process.
#include <stdio.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/base/printable_text.h"
#include "userspace/cli/client.h"
#include "userspace/cli/command_line.h"
#include "userspace/cli/commands.h"
#include "userspace/cli/documents.h"
#include "userspace/cli/exit_status.h"
#include "userspace/cli/growth.h"
#include "userspace/cli/local_names.h"
#include "userspace/cli/profile_source.h"
#include "userspace/cli/recording.h"

namespace heaptap::cli {
namespace {

using profile::Profile;

constexpr size_t kDefaultTop = 20;
constexpr double kDefaultSeconds = 10;

struct DiffFlags {
  std::string socket = kDefaultSocket;
  std::string before;  // a path; without `after`, a PID
  std::string after;
  std::optional<double> seconds;
  bool json = false;
  size_t top = kDefaultTop;
  bool objects = false;
};

struct Snapshots {
  Profile before;
  Profile after;
};

absl::StatusOr<Snapshots> OfFiles(const std::string& before_path, const std::string& after_path) {
  absl::StatusOr<Profile> before = ReadDump(before_path);
  if (!before.ok()) return before.status();
  absl::StatusOr<Profile> after = ReadDump(after_path);
  if (!after.ok()) return after.status();
  return Snapshots{*std::move(before), *std::move(after)};
}

absl::StatusOr<Snapshots> OfProcess(const Client& client, pid_t pid, absl::Duration window) {
  absl::StatusOr<ProcessDocument> first = GetProcess(client, pid);
  if (!first.ok()) return first.status();
  absl::StatusOr<Profile> before = FetchProfile(client, pid);
  if (!before.ok()) return before.status();
  absl::SleepFor(window);
  absl::StatusOr<Profile> after = FetchProfile(client, pid);
  if (!after.ok()) return after.status();
  absl::StatusOr<ProcessDocument> second = GetProcess(client, pid);
  if (!second.ok()) return second.status();
  if (first->value.process_id != second->value.process_id) {
    return absl::FailedPreconditionError(
        absl::StrCat("process ", pid, " has ended, started another program or reset its profile in the meantime"));
  }
  return Snapshots{*std::move(before), *std::move(after)};
}

absl::StatusOr<Snapshots> Take(const DiffFlags& flags) {
  if (!flags.after.empty()) {
    if (flags.seconds.has_value())
      return absl::InvalidArgumentError("diff: --seconds needs the PID of a process instead of dumps");
    return OfFiles(flags.before, flags.after);
  }
  pid_t pid = 0;
  if (!absl::SimpleAtoi(flags.before, &pid) || pid <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("diff ", base::Printable(flags.before), ": expected two dumps, or the PID of a process"));
  }
  return OfProcess(Client(flags.socket), pid, absl::Seconds(flags.seconds.value_or(kDefaultSeconds)));
}

int Diff(const DiffFlags& flags) {
  absl::StatusOr<Snapshots> taken = Take(flags);
  if (!taken.ok()) return Report(taken.status());
  if (absl::Status status = CheckSameProcess(taken->before, taken->after); !status.ok()) return Report(status);
  const Growth growth = FindGrowth(taken->before, taken->after, flags.objects ? SortBy::kObjects : SortBy::kBytes);
  const size_t top = flags.top == 0 ? SIZE_MAX : flags.top;
  const LocalNames names(growth.difference.mappings, CallAddresses(growth, top));
  SayMissing(names);
  const std::string text = flags.json ? GrowthJson(growth, top, names.Find()) : GrowthText(growth, top, names.Find());
  fputs(text.c_str(), stdout);
  return kSuccess;
}

}  // namespace

void AddDiff(CommandLine& line) {
  Command command = line.AddCommand(
      "diff", "show what grew, by call path: between two dumps (heap_v2 or gperftools), or in a running process");
  auto flags = std::make_shared<DiffFlags>();
  command
      .Add("BEFORE", flags->before,
           "compare this dump with AFTER; without AFTER: the PID of a process that the daemon records")
      .Required()
      .Type("");
  command.Add("AFTER", flags->after, "compare with this later dump of the same process").Type("");
  command.Add("--seconds", flags->seconds, "wait N seconds between the two snapshots of a process (default: 10)")
      .Type("N")
      .AboveZero();
  command.AddFlag("--objects", flags->objects, "sort by objects, not by bytes");
  command.Add("--top", flags->top, "show N call paths (default: 20; 0: all)").Type("N").NotNegative();
  command.AddFlag("--json", flags->json, "print one JSON document instead of text");
  AddSocketOption(command, flags->socket);
  command.Runs([flags] { return Diff(*flags); });
}

}  // namespace heaptap::cli
