// SPDX-License-Identifier: Apache-2.0
//
// heaptap report: shows who holds the memory, in a dump or in a running process.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "userspace/base/messages.h"
#include "userspace/cli/ask/client.h"
#include "userspace/cli/show/report_subject.h"
#include "userspace/cli/show/report_views.h"
#include "userspace/cli/subjects/local_names.h"
#include "userspace/cli/subjects/past_growth.h"
#include "userspace/cli/subjects/profile_source.h"
#include "userspace/cli/words/command_line.h"
#include "userspace/cli/words/commands.h"
#include "userspace/cli/words/exit_status.h"
#include "userspace/cli/words/terminal.h"
#include "userspace/cli/words/whole_file.h"
#include "userspace/report/named_profile.h"
#include "userspace/report/selection.h"
#include "userspace/report/summary_text.h"

namespace heaptap::cli {
namespace {

constexpr char kByThread[] = "thread";
constexpr char kBySize[] = "size";
constexpr char kByAge[] = "age";

struct ReportFlags {
  std::string socket = DefaultSocket();
  NamePlaces places;
  std::string subject;
  std::string base;
  std::deque<bool> views = std::deque<bool>(ReportViews().size());  // for each view, whether it is asked for
  std::string callers;
  std::string peek;
  std::string output = "-";
  // What the views show.
  std::string by = "function";
  bool allocated = false;
  bool freed = false;
  bool objects = false;
  bool inuse_space = false;  // the default
  bool alloc_objects = false;
  bool full = false;
  bool lines = false;
  bool show_bytes = false;
  bool cum = false;
  bool no_source_paths = false;
  report::Filters filters;
  std::string exclude;
  std::optional<uint64_t> limit;
  double smallest = 0.5;
};

report::Show ToShow(const ReportFlags& flags) {
  report::Show show = {.full_names = flags.full};
  if (flags.by == "line" || flags.lines) show.by = report::By::kLine;
  if (flags.by == "library") show.by = report::By::kLibrary;
  if (flags.by == kByThread) show.by = report::By::kThread;
  if (flags.by == kBySize) show.by = report::By::kSize;
  if (flags.by == kByAge) show.by = report::By::kAge;
  const bool allocated = flags.allocated || flags.alloc_objects;
  const bool objects = flags.objects || flags.alloc_objects;
  if (allocated) show.value = report::Value::kAllocated;
  if (flags.freed) show.value = report::Value::kFreed;
  if (objects) show.unit = report::Unit::kObjects;
  return show;
}

// --callers shows a tree, in which cut paths are marked.
report::CutPaths CutPathsFor(const ReportFlags& flags, const View* view) {
  if (view != nullptr) return view->cut_paths;
  return flags.callers.empty() ? report::CutPaths::kBare : report::CutPaths::kMarked;
}

report::Roots RootsFor(const ReportFlags& flags) {
  if (flags.by == kByThread) return report::Roots::kThreads;
  if (flags.by == kBySize) return report::Roots::kSizes;
  return flags.by == kByAge ? report::Roots::kAges : report::Roots::kNone;
}

// Null: no view with a flag is chosen.
const View* ChosenView(const ReportFlags& flags) {
  const absl::Span<const View> views = ReportViews();
  const auto chosen = std::ranges::find(flags.views, true) - flags.views.begin();
  return chosen == std::ssize(views) ? nullptr : &views[chosen];
}

// A view of a profile must say what is missing in the profile.
void SayWarnings(const report::Subject& subject) {
  for (const std::string& warning : subject.warnings) {
    base::Say(absl::StrCat("missing: ", absl::StripPrefix(warning, "heaptap: ")));
  }
}

absl::Status Write(const ReportFlags& flags, const View* view, const ReportInput& input) {
  const bool is_terminal = flags.output == "-" && isatty(STDOUT_FILENO) == 1;
  if (view != nullptr && view->is_binary && is_terminal) {
    return absl::InvalidArgumentError(
        absl::StrCat(view->option, ": a terminal cannot show this format; write it to a file with -o"));
  }
  const MakeView make = view != nullptr          ? view->make
                        : !input.callers.empty() ? CallersView
                        : !input.peek.empty()    ? PeekView
                                                 : ShortView;
  const absl::StatusOr<std::string> text = make(input);
  const bool is_short = make == ShortView && !report::IsOfRoots(input.show.by);
  if (!(view != nullptr ? view->shows_warnings : is_short)) SayWarnings(input.subject);
  if (!text.ok()) return text.status();
  return WriteWholeFile(flags.output, *text,
                        view != nullptr && view->has_addresses ? Readers::kOwner : Readers::kUsual);
}

absl::StatusOr<Seen> See(const ReportFlags& flags, const View* view) {
  const report::Roots roots = RootsFor(flags);
  if (roots == report::Roots::kNone) {
    const auto unchanged = view == nullptr ? profile::Unchanged::kLeaveOut : view->unchanged;
    const auto look = view != nullptr && view->has_shares ? LookAtShares : LookAt;
    return look(flags.socket, flags.subject, flags.base, flags.places, unchanged);
  }
  const auto without = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("--by ", flags.by, ": leave out ", what));
  };
  if (flags.lines) return without("--lines");
  if (!flags.base.empty()) return without("--base: differences are by call path");
  const bool is_live = !flags.allocated && !flags.alloc_objects && !flags.freed;
  if (roots != report::Roots::kThreads && !is_live) {
    return without("--allocated and --freed: sizes and ages are known of live memory only");
  }
  return LookAtRoots(flags.socket, flags.subject, roots, absl::StrCat("--by ", flags.by));
}

// An unknown figure must not look like zero.
absl::Status CheckIsKnown(const ReportFlags& flags, const Seen& seen) {
  if (seen.subject.has_allocated || ToShow(flags).value == report::Value::kLive) return absl::OkStatus();
  const char* const option = flags.freed ? "--freed" : flags.allocated ? "--allocated" : "--alloc_objects";
  return absl::InvalidArgumentError(absl::StrCat(
      option, ": of ", seen.subject.name, " only what is live is known, not what was allocated; leave out ", option));
}

// Whether the user asks for the short form of what a process holds now. The history can add to this form.
bool IsPlain(const ReportFlags& flags, const View* view) {
  const report::Show show = ToShow(flags);
  return view == nullptr && flags.callers.empty() && flags.peek.empty() && flags.base.empty() &&
         show.by == report::By::kFunction && show.value == report::Value::kLive && show.unit == report::Unit::kBytes;
}

int ReportMemory(const ReportFlags& flags) {
  if (const absl::Status status = CheckPlaces(flags.places); !status.ok()) return Report(status);
  const View* view = ChosenView(flags);
  absl::StatusOr<Seen> seen = See(flags, view);
  if (!seen.ok()) return Report(seen.status());
  if (const absl::Status status = CheckIsKnown(flags, *seen); !status.ok()) return Report(status);
  const LocalNames names(seen->profile, flags.places, seen->symbols);
  SayMissing(names);
  const profile::FindSourceFrames find = names.Find();
  const report::NamedProfile named(seen->profile, find, seen->measures, RootsFor(flags), CutPathsFor(flags, view));
  ReportInput input = {.profile = seen->profile,
                       .find = find,
                       .named = named,
                       .subject = seen->subject,
                       .show = ToShow(flags),
                       .filters = flags.filters,
                       .exclude = flags.exclude,
                       .callers = flags.callers,
                       .peek = flags.peek,
                       .show_bytes = flags.show_bytes,
                       .by_total = flags.cum,
                       .source_paths = !flags.no_source_paths,
                       .limit = flags.limit,
                       .smallest = flags.smallest,
                       .width = flags.output == "-" ? TerminalWidth(STDOUT_FILENO) : 0};
  if (!seen->pid.has_value() || !IsPlain(flags, view)) return Report(Write(flags, view, input));
  const std::optional<PastGrowth> past = FindPastGrowth(Client(flags.socket), *seen->pid);
  if (!past.has_value()) return Report(Write(flags, view, input));
  const LocalNames past_names(past->growth.difference, flags.places, past->symbols);
  const profile::FindSourceFrames past_find = past_names.Find();
  const report::NamedProfile changed(past->growth.difference, past_find, past->growth.measures);
  input.past = &changed;
  input.past_time = past->time;
  return Report(Write(flags, view, input));
}

void AddViews(Command command, ReportFlags& flags) {
  std::vector<Option> views;
  for (size_t i = 0; i < ReportViews().size(); i++) {
    views.push_back(command.AddFlag(ReportViews()[i].option, flags.views[i], ReportViews()[i].help));
  }
  views.push_back(command.Add("--callers", flags.callers, "show who calls this function, as a tree").Type("FUNCTION"));
  views.push_back(
      command.Add("--peek", flags.peek, "show functions that match, with their callers and callees").Type("REGEX"));
  for (Option& one : views) {
    for (const Option& other : views) {
      if (!(one == other)) one.Excludes(other);
    }
  }
  command.Add("-o,--output", flags.output, "write to FILE instead of stdout").Type("FILE");
}

void AddMeasures(Command command, ReportFlags& flags) {
  command
      .Add("--by", flags.by, "sum by function (default), line, library or thread; of live memory also by size or age")
      .OneOf({"function", "line", "library", kByThread, kBySize, kByAge})
      .Type("WHAT");
  Option allocated = command.AddFlag("--allocated,--alloc_space,--alloc-space", flags.allocated,
                                     "show what was allocated, freed or not, instead of what is live");
  Option freed = command.AddFlag("--freed", flags.freed, "show what was allocated and is no longer live");
  command.AddFlag("--objects,--inuse_objects,--inuse-objects", flags.objects, "show objects instead of bytes");
  command.AddFlag("--inuse_space,--inuse-space", flags.inuse_space, "show live bytes (default)");
  Option alloc_objects =
      command.AddFlag("--alloc_objects,--alloc-objects", flags.alloc_objects, "show allocated objects");
  freed.Excludes(allocated);
  freed.Excludes(alloc_objects);
  command.AddFlag("--lines", flags.lines, "name lines: the same as --by line");
  command.AddFlag("--show-bytes,--show_bytes", flags.show_bytes, "--text: show bytes, not MB");
  command.AddFlag("--cum", flags.cum, "--text: sort by what a function allocated with those that it has called");
  command.AddFlag("--no-source-paths", flags.no_source_paths,
                  "--html: leave out the folders of source files and libraries, which may be confidential");
  command.AddFlag("--full", flags.full,
                  "show whole names and all frames: also those of std::, allocators and thread starts");
  command.Add("--limit", flags.limit, "show N call paths or rows (default: 5 or 20; 0: all)").Type("N");
  command
      .Add("--smallest", flags.smallest,
           "--tree, --callers, --peek: leave out branches and calls below this percentage (default: 0.5)")
      .Type("PERCENT")
      .NotNegative();
}

void AddFilters(Command command, ReportFlags& flags) {
  command.Add("--focus", flags.filters.focus, "only call paths with a frame that matches (function, file or library)")
      .Type("REGEX");
  command.Add("--ignore", flags.filters.ignore, "no call paths with a frame that matches").Type("REGEX");
  command.Add("--hide", flags.filters.hide, "leave out frames that match").Type("REGEX");
  command.Add("--exclude", flags.exclude, "leave out frames whose function matches, as jeprof does").Type("REGEX");
  command.Add("--show,--retain", flags.filters.show, "leave out all frames but those that match").Type("REGEX");
}

}  // namespace

void AddReport(CommandLine& line) {
  Command command =
      line.AddCommand("report", "show who holds the memory: of a dump, or of a process that the daemon records");
  auto flags = std::make_shared<ReportFlags>();
  AddSubjectOptions(command, flags->subject, flags->base);
  AddViews(command, *flags);
  AddMeasures(command, *flags);
  AddFilters(command, *flags);
  AddPlacesOptions(command, flags->places);
  AddSocketOption(command, flags->socket);
  command.Runs([flags] { return ReportMemory(*flags); });
}

}  // namespace heaptap::cli
