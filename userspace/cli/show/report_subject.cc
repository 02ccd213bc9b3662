// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/show/report_subject.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/printable_text.h"
#include "userspace/cli/ask/client.h"
#include "userspace/cli/ask/documents.h"
#include "userspace/cli/ask/find_process.h"
#include "userspace/cli/show/short_report.h"
#include "userspace/cli/subjects/comparable.h"
#include "userspace/cli/subjects/growth.h"
#include "userspace/cli/subjects/history_profile.h"
#include "userspace/cli/subjects/profile_source.h"
#include "userspace/cli/words/moment.h"
#include "userspace/cli/words/shell_word.h"
#include "userspace/profile/coverage.h"

namespace heaptap::cli {
namespace {

using profile::Profile;

bool IsFile(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && !S_ISDIR(status.st_mode);
}

// A word with a slash, such as a URL, is not a command. If it cannot be read, ReadDump says why.
bool IsDump(const std::string& word) { return IsFile(word) || absl::StrContains(word, '/'); }

absl::StatusOr<Seen> OfDump(const std::string& path, formats::ReadThreads threads) {
  absl::StatusOr<Dump> dump = ReadDump(path, threads);
  if (!dump.ok()) return dump.status();
  report::Subject subject = DumpSubject(dump->profile, path);
  return Seen{.profile = std::move(dump->profile), .subject = std::move(subject), .symbols = std::move(dump->symbols)};
}

enum class Detail { kSums, kThreads, kBlocks };

absl::StatusOr<Dump> Fetch(const Client& client, pid_t pid, Detail detail) {
  if (detail == Detail::kBlocks) return FetchBlocks(client, pid);
  const bool with_threads = detail == Detail::kThreads;
  absl::StatusOr<Profile> profile =
      FetchProfile(client, pid, with_threads ? formats::ReadThreads::kSeparate : formats::ReadThreads::kSum);
  if (!profile.ok()) return profile.status();
  return Dump{.profile = *std::move(profile)};
}

absl::StatusOr<Seen> OfProcess(const std::string& socket, const std::string& word, Detail detail) {
  const Client client(socket);
  const absl::StatusOr<ProcessDocument> process = FindProcess(client, word, kFileOrRecordedProcess);
  if (IsNoDaemon(process.status()) && !ToPid(word).has_value()) {
    return absl::FailedPreconditionError(absl::StrCat("there is no file ", base::Printable(word), ", and no daemon at ",
                                                      base::Printable(socket),
                                                      " that could record a process of that name"));
  }
  if (!process.ok()) return process.status();
  const pid_t pid = process->value.pid;
  absl::StatusOr<Dump> dump = Fetch(client, pid, detail);
  if (!dump.ok()) return dump.status();
  report::Subject subject = DumpSubject(dump->profile, "");
  subject.name = absl::StrCat(base::Printable(process->value.command), " (PID ", pid, ")");
  subject.resident_bytes = ResidentBytes(pid);
  subject.recorded_for = base::WallNow() - process->value.recorded_since;
  const std::string at = SocketWords(socket);
  subject.next_commands = {absl::StrCat("heaptap report --tree ", pid, at),
                           absl::StrCat("heaptap diff ", pid, " --seconds 60", at)};
  return Seen{.profile = std::move(dump->profile),
              .subject = std::move(subject),
              .pid = pid,
              .symbols = std::move(dump->symbols)};
}

// Adds how the memory of the process divides, as the daemon's own page shows it. What the daemon does not tell stays
// unknown: the process may have ended meanwhile, or the daemon is older.
void AddCoverage(const Client& client, Seen& seen) {
  if (!seen.pid.has_value()) return;
  const absl::StatusOr<profile::ResidentBytes> resident = GetResident(client, *seen.pid);
  if (!resident.ok()) return;
  const absl::StatusOr<profile::AllocatorFigures> allocator = GetAllocator(client, *seen.pid);
  report::Subject& subject = seen.subject;
  subject.coverage =
      profile::Cover(*resident, allocator.ok() && allocator->statistics.has_value() ? &*allocator->statistics : nullptr,
                     seen.profile.Live().bytes);
  // The sum is of the same moment as its parts.
  subject.resident_bytes = profile::SumOf(subject.coverage);
  // heaptap view shows the division as a picture.
  subject.next_commands.push_back(absl::StrCat("heaptap view ", *seen.pid, SocketWords(client.socket())));
}

// Whether the profile tells threads apart. Also true for a profile without paths, which has nothing to tell apart.
bool HasThreads(const Profile& profile) {
  const std::vector<profile::ThreadShare> threads = profile.Threads();
  const bool has_others = std::ranges::any_of(threads, [](const profile::ThreadShare& one) { return one.tid != 0; });
  return has_others || threads.empty() || !profile.thread_names.empty();
}

bool HasBlocks(const Profile& profile, report::Roots roots) {
  if (profile.Live().IsZero()) return true;
  return std::ranges::any_of(profile.contexts, [roots](const profile::Context& context) {
    return std::ranges::any_of(context.blocks, [roots](const profile::BlockShare& share) {
      return roots == report::Roots::kSizes || share.age != profile::kUnknownAge;
    });
  });
}

// A moment of the past. All moments of one report share `profiles`.
absl::StatusOr<Seen> OfMoment(HistoryProfiles& profiles, const NamedMoment& moment, const std::string& word) {
  absl::StatusOr<Dump> dump = profiles.Fetch(moment);
  if (!dump.ok()) return dump.status();
  report::Subject subject = DumpSubject(dump->profile, "");
  subject.name = base::Printable(word);
  const std::string name = base::Printable(moment.name);
  const std::string at = SocketWords(profiles.socket());
  subject.next_commands = {absl::StrCat("heaptap history ", ShellWord(name), at)};
  // After the last moment nothing is known.
  if (!moment.is_last) {
    subject.next_commands.push_back(
        absl::StrCat("heaptap diff ", ShellWord(subject.name), " ", ShellWord(absl::StrCat(name, "@now")), at));
  }
  return Seen{.profile = std::move(dump->profile), .subject = std::move(subject), .symbols = std::move(dump->symbols)};
}

// Reads what --base names. The addresses of moments mean nothing elsewhere, so they are compared with each other only.
absl::StatusOr<Dump> ReadBase(HistoryProfiles& profiles, const std::string& base, bool is_of_moment) {
  const bool is_dump = IsDump(base);
  const std::optional<absl::StatusOr<NamedMoment>> moment = is_dump ? std::nullopt : ParseNamedMoment(base);
  if (moment.has_value() != is_of_moment) {
    return absl::InvalidArgumentError(absl::StrCat("--base ", base::Printable(base),
                                                   ": compare a dump or a process "
                                                   "with a dump, and a moment with a moment (NAME@now)"));
  }
  if (!moment.has_value()) return ReadDump(base);
  if (!moment->ok()) return moment->status();
  return profiles.Fetch(**moment);
}

// ReadBase checks a base that is not a moment.
absl::Status CheckIsEarlier(const std::string& base, absl::Time time) {
  const std::optional<absl::StatusOr<NamedMoment>> moment = ParseNamedMoment(base);
  if (!moment.has_value() || !moment->ok() || (*moment)->is_last || (*moment)->time <= time) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--base ", base::Printable(base), ": this moment is later than the one that is compared with it"));
}

}  // namespace

absl::StatusOr<Seen> LookAt(const std::string& socket, const std::string& word, const std::string& base,
                            const NamePlaces& places, profile::Unchanged unchanged) {
  const bool is_dump = IsDump(word);
  const Client client(socket);
  HistoryProfiles profiles(client);
  const std::optional<absl::StatusOr<NamedMoment>> moment = is_dump ? std::nullopt : ParseNamedMoment(word);
  if (moment.has_value() && !moment->ok()) return moment->status();
  if (moment.has_value() && !(*moment)->is_last && !base.empty()) {
    if (const absl::Status status = CheckIsEarlier(base, (*moment)->time); !status.ok()) return status;
  }
  absl::StatusOr<Seen> seen = is_dump              ? OfDump(word, formats::ReadThreads::kSum)
                              : moment.has_value() ? OfMoment(profiles, **moment, word)
                                                   : OfProcess(socket, word, Detail::kSums);
  if (seen.ok() && base.empty()) AddCoverage(client, *seen);
  if (!seen.ok() || base.empty()) return seen;
  absl::StatusOr<Dump> before = ReadBase(profiles, base, moment.has_value());
  if (!before.ok()) return before.status();
  Dump after = {.profile = std::move(seen->profile), .symbols = std::move(seen->symbols)};
  if (!moment.has_value()) MakeComparable(*before, after, places);
  Growth growth = FindGrowth(before->profile, after.profile, unchanged);
  seen->subject = ToSubject(growth, absl::StrCat(seen->subject.name, " since ", base::Printable(base)));
  seen->profile = std::move(growth.difference);
  seen->measures = std::move(growth.measures);
  seen->symbols = std::move(after.symbols);
  seen->symbols.merge(before->symbols);
  return seen;
}

absl::StatusOr<Seen> LookAtShares(const std::string& socket, const std::string& word, const std::string& base,
                                  const NamePlaces& places, profile::Unchanged unchanged) {
  if (base.empty() && IsDump(word)) return OfDump(word, formats::ReadThreads::kSeparate);
  if (!base.empty() || ParseNamedMoment(word).has_value()) return LookAt(socket, word, base, places, unchanged);
  absl::StatusOr<Seen> seen = OfProcess(socket, word, Detail::kBlocks);
  if (seen.ok()) AddCoverage(Client(socket), *seen);
  return seen;
}

absl::StatusOr<Seen> LookAtRoots(const std::string& socket, const std::string& word, report::Roots roots,
                                 absl::string_view option) {
  const auto without = [option](absl::string_view what) {
    return absl::FailedPreconditionError(absl::StrCat(option, ": ", what));
  };
  const bool is_dump = IsDump(word);
  if (!is_dump && ParseNamedMoment(word).has_value()) {
    return without("the history does not tell threads, sizes and ages apart");
  }
  absl::StatusOr<Seen> seen =
      is_dump ? OfDump(word, formats::ReadThreads::kSeparate)
              : OfProcess(socket, word, roots == report::Roots::kThreads ? Detail::kThreads : Detail::kBlocks);
  if (!seen.ok()) return seen;
  const Profile& profile = seen->profile;
  if (roots == report::Roots::kThreads ? !HasThreads(profile) : !HasBlocks(profile, roots)) {
    return without(roots == report::Roots::kThreads
                       ? "this dump does not tell threads apart (heap_v2 does, and so does a profile of pprof with the "
                         "label thread_id)"
                       : "this dump does not have the sizes and ages of blocks (a process that the daemon records "
                         "does, and so does a dump of heaptap dump --format blocks)");
  }
  return seen;
}

void AddSubjectOptions(Command command, std::string& word, std::string& base) {
  command
      .Add("SUBJECT", word,
           "a dump (heap_v2, gperftools or pprof; a file or an http:// URL), a PID, the command of a process, or a "
           "moment of the history (NAME@WHEN)")
      .Required()
      .Type("");
  command.Add("--base", base, "show the difference to this earlier dump or moment").Type("DUMP");
}

}  // namespace heaptap::cli
