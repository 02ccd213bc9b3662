// SPDX-License-Identifier: Apache-2.0
//
// heaptap diff: shows what grew between two dumps, or in a running process.
#include <sys/types.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/printable_text.h"
#include "userspace/cli/ask/client.h"
#include "userspace/cli/ask/documents.h"
#include "userspace/cli/ask/find_process.h"
#include "userspace/cli/subjects/comparable.h"
#include "userspace/cli/subjects/growth.h"
#include "userspace/cli/subjects/history_profile.h"
#include "userspace/cli/subjects/local_names.h"
#include "userspace/cli/subjects/profile_source.h"
#include "userspace/cli/words/command_line.h"
#include "userspace/cli/words/commands.h"
#include "userspace/cli/words/exit_status.h"
#include "userspace/cli/words/moment.h"
#include "userspace/cli/words/terminal.h"
#include "userspace/cli/words/whole_file.h"
#include "userspace/http/url.h"
#include "userspace/report/human.h"
#include "userspace/report/named_profile.h"
#include "userspace/report/selection.h"
#include "userspace/report/summary_text.h"

namespace heaptap::cli {
namespace {

using profile::Profile;

constexpr size_t kDefaultTop = 20;
constexpr double kDefaultSeconds = 10;

struct DiffFlags {
  std::string socket = DefaultSocket();
  NamePlaces places;
  std::string before;  // a path; without `after`, a PID
  std::string after;
  std::optional<double> seconds;
  bool json = false;
  size_t top = kDefaultTop;
  bool objects = false;
  bool full = false;
};

report::Unit SortBy(const DiffFlags& flags) { return flags.objects ? report::Unit::kObjects : report::Unit::kBytes; }

struct Snapshots {
  std::string name;  // printable
  Profile before;
  Profile after;
  formats::Symbols symbols = {};  // of the dumps
};

absl::StatusOr<Snapshots> OfFiles(const std::string& before_path, const std::string& after_path,
                                  const NamePlaces& places) {
  absl::StatusOr<Dump> before = ReadDump(before_path);
  if (!before.ok()) return before.status();
  absl::StatusOr<Dump> after = ReadDump(after_path);
  if (!after.ok()) return after.status();
  MakeComparable(*before, *after, places);
  after->symbols.merge(before->symbols);
  return Snapshots{.name = absl::StrCat(base::Printable(after_path), " since ", base::Printable(before_path)),
                   .before = std::move(before->profile),
                   .after = std::move(after->profile),
                   .symbols = std::move(after->symbols)};
}

bool IsMoment(const std::string& word) {
  return !http::IsUrl(word) && access(word.c_str(), F_OK) != 0 && ParseNamedMoment(word).has_value();
}

absl::StatusOr<Snapshots> OfMoments(const Client& client, const std::string& before_word,
                                    const std::string& after_word) {
  std::vector<NamedMoment> moments;
  moments.reserve(2);
  for (const std::string* word : {&before_word, &after_word}) {
    const std::optional<absl::StatusOr<NamedMoment>> moment = ParseNamedMoment(*word);
    if (!moment.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("diff ", base::Printable(*word), ": expected NAME@MOMENT, like the other one"));
    }
    if (!moment->ok()) return moment->status();
    moments.push_back(**moment);
  }
  const bool have_times = !moments[0].is_last && !moments[1].is_last;
  if (have_times && moments[0].time > moments[1].time) {
    return absl::InvalidArgumentError(absl::StrCat("diff: ", base::Printable(before_word), " is later than ",
                                                   base::Printable(after_word), "; name the earlier moment first"));
  }
  HistoryProfiles profiles(client);
  absl::StatusOr<Dump> before = profiles.Fetch(moments[0]);
  if (!before.ok()) return before.status();
  absl::StatusOr<Dump> after = profiles.Fetch(moments[1]);
  if (!after.ok()) return after.status();
  after->symbols.merge(before->symbols);
  return Snapshots{.name = absl::StrCat(base::Printable(after_word), " since ", base::Printable(before_word)),
                   .before = std::move(before->profile),
                   .after = std::move(after->profile),
                   .symbols = std::move(after->symbols)};
}

absl::StatusOr<Snapshots> OfProcess(const Client& client, const std::string& word, absl::Duration window) {
  absl::StatusOr<ProcessDocument> first = FindProcess(client, word);
  if (!first.ok()) return first.status();
  const pid_t pid = first->value.pid;
  absl::StatusOr<Profile> before = FetchProfile(client, pid);
  if (!before.ok()) return before.status();
  base::Sleep(window);
  absl::StatusOr<Profile> after = FetchProfile(client, pid);
  if (!after.ok()) return after.status();
  absl::StatusOr<ProcessDocument> second = GetProcess(client, pid);
  if (!second.ok()) return second.status();
  if (first->value.process_id != second->value.process_id) {
    return absl::FailedPreconditionError(
        absl::StrCat("process ", pid, " has ended, started another program or reset its profile in the meantime"));
  }
  const std::string name =
      absl::StrCat(base::Printable(first->value.command), " (PID ", pid, ") in ", report::HumanDuration(window));
  return Snapshots{.name = name, .before = *std::move(before), .after = *std::move(after)};
}

absl::StatusOr<Snapshots> Take(const DiffFlags& flags) {
  if (!flags.after.empty()) {
    if (flags.seconds.has_value())
      return absl::InvalidArgumentError("diff: --seconds needs a process instead of dumps");
    if (IsMoment(flags.before) || IsMoment(flags.after)) {
      return OfMoments(Client(flags.socket), flags.before, flags.after);
    }
    return OfFiles(flags.before, flags.after, flags.places);
  }
  const auto unexpected = [&](absl::string_view more) {
    return absl::InvalidArgumentError(absl::StrCat(
        "diff ", base::Printable(flags.before),
        ": expected two dumps, two moments (NAME@yesterday NAME@now), or a process that the daemon records", more));
  };
  const bool is_pid = ToPid(flags.before).has_value();
  if (!CheckProcessWord(flags.before).empty()) return unexpected("");
  if (!is_pid && (access(flags.before.c_str(), F_OK) == 0 || ParseNamedMoment(flags.before).has_value())) {
    return unexpected("");
  }
  absl::StatusOr<Snapshots> taken =
      OfProcess(Client(flags.socket), flags.before, absl::Seconds(flags.seconds.value_or(kDefaultSeconds)));
  if (!is_pid && IsNoDaemon(taken.status())) {
    return unexpected(absl::StrCat("; there is no daemon at ", base::Printable(flags.socket)));
  }
  return taken;
}

std::string Text(const DiffFlags& flags, const Growth& growth, const std::string& name,
                 const profile::FindSourceFrames& find) {
  const report::NamedProfile named(growth.difference, find, growth.measures);
  const absl::StatusOr<std::vector<report::Path>> paths = report::Select(named, {.fold = !flags.full});
  const report::Show show = {.unit = SortBy(flags), .full_names = flags.full};
  return report::SummaryText(named, *paths, ToSubject(growth, name), show,
                             {.width = flags.full ? 0 : TerminalWidth(STDOUT_FILENO), .top = flags.top});
}

int Diff(const DiffFlags& flags) {
  if (const absl::Status status = CheckPlaces(flags.places); !status.ok()) return Report(status);
  absl::StatusOr<Snapshots> taken = Take(flags);
  if (!taken.ok()) return Report(taken.status());
  const Growth growth = FindGrowth(taken->before, taken->after);
  const LocalNames names(growth.difference, flags.places, taken->symbols);
  SayMissing(names);
  return Report(WriteWholeFile("-", flags.json ? GrowthJson(growth, flags.top, SortBy(flags), names.Find())
                                               : Text(flags, growth, taken->name, names.Find())));
}

}  // namespace

void AddDiff(CommandLine& line) {
  Command command = line.AddCommand("diff",
                                    "show what grew, by call path: between two dumps (heap_v2, gperftools or "
                                    "pprof), two "
                                    "moments of the history (NAME@WHEN), "
                                    "or in a running process");
  auto flags = std::make_shared<DiffFlags>();
  command
      .Add("BEFORE", flags->before,
           "compare this dump (a file or an http:// URL) or moment with AFTER; without AFTER: a process that the "
           "daemon records, by its PID or its command")
      .Required()
      .Type("");
  command
      .Add("AFTER", flags->after,
           "compare with this later dump, or this later moment; dumps of two processes are compared by names")
      .Type("");
  command.Add("--seconds", flags->seconds, "wait N seconds between the two snapshots of a process (default: 10)")
      .Type("N")
      .AboveZero();
  command.AddFlag("--objects", flags->objects, "sort by objects, not by bytes");
  command.Add("--top", flags->top, "show N call paths (default: 20; 0: all)").Type("N").NotNegative();
  command.AddFlag("--full", flags->full, "show whole names and all frames");
  command.AddFlag("--json", flags->json, "print one JSON document instead of text");
  AddPlacesOptions(command, flags->places);
  AddSocketOption(command, flags->socket);
  command.Runs([flags] { return Diff(*flags); });
}

}  // namespace heaptap::cli
