// SPDX-License-Identifier: Apache-2.0
//
// heaptap top: shows the daemon's processes and what holds their memory, live in a terminal.
#include <sys/types.h>

#include <cstdint>
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
#include "userspace/cli/show/report_subject.h"
#include "userspace/cli/show/report_views.h"
#include "userspace/cli/show/short_report.h"
#include "userspace/cli/subjects/local_names.h"
#include "userspace/cli/top/top_model.h"
#include "userspace/cli/top/top_screen.h"
#include "userspace/cli/words/command_line.h"
#include "userspace/cli/words/commands.h"
#include "userspace/cli/words/exit_status.h"
#include "userspace/cli/words/whole_file.h"
#include "userspace/report/named_profile.h"

namespace heaptap::cli {
namespace {

// Call paths of a process on its page: the page scrolls.
constexpr uint64_t kPaths = 50;

struct TopFlags {
  std::string socket = DefaultSocket();
  std::string subject;
  std::string sort = "live";
  double delay = 2;  // seconds
  bool once = false;
};

absl::StatusOr<std::vector<TopProcess>> Processes(const Client& client) {
  absl::StatusOr<std::vector<ProcessDocument>> documents = GetProcesses(client);
  if (!documents.ok()) return documents.status();
  std::vector<TopProcess> processes;
  processes.reserve(documents->size());
  for (ProcessDocument& document : *documents) {
    const std::optional<double> resident = ResidentBytes(document.value.pid);
    processes.push_back({.summary = std::move(document.value), .resident_bytes = resident});
  }
  return processes;
}

struct Paths {
  pid_t pid = 0;
  std::string text;
};

absl::StatusOr<Paths> PathsOf(const std::string& socket, const std::string& word, size_t width) {
  const absl::StatusOr<Seen> seen = LookAt(socket, word, "");
  if (!seen.ok()) return seen.status();
  const LocalNames names(seen->profile);
  const profile::FindSourceFrames find = names.Find();
  const report::NamedProfile named(seen->profile, find);
  report::Subject subject = seen->subject;
  subject.next_commands.clear();
  absl::StatusOr<std::string> text = ShortView(
      {.profile = seen->profile, .find = find, .named = named, .subject = subject, .limit = kPaths, .width = width});
  if (!text.ok()) return text.status();
  return Paths{.pid = seen->pid.value_or(0), .text = *std::move(text)};
}

// What a running screen needs.
class Top {
 public:
  Top(const TopFlags& flags, TopModel& model, const TopScreen& screen)
      : flags_(flags), client_(flags.socket), model_(model), screen_(screen) {}

  int Run() {
    for (base::Instant next = base::Instant::InfinitePast();;) {
      if (base::Now() >= next) {
        Poll();
        next = base::Now() + absl::Seconds(flags_.delay);
      }
      screen_.Draw(model_);
      const std::optional<int> key = screen_.WaitForKey(next - base::Now());
      if (!key.has_value()) continue;
      switch (model_.Press(*key)) {
        case TopAction::kQuit:
          return kSuccess;
        case TopAction::kShowPaths:
          ShowPaths(absl::StrCat(model_.selected()));
          break;
        case TopAction::kDump:
          Dump();
          break;
        case TopAction::kMark:
          Mark();
          break;
        case TopAction::kNone:
          break;
      }
    }
  }

  void ShowPaths(const std::string& word) {
    SayAtOnce("reading ...");
    const absl::StatusOr<Paths> paths = PathsOf(flags_.socket, word, screen_.width());
    if (paths.ok()) {
      model_.ShowPaths(paths->pid, paths->text);
      model_.Say("");
    } else {
      model_.Say(std::string(paths.status().message()));
    }
  }

 private:
  void Poll() {
    absl::StatusOr<std::vector<TopProcess>> processes = Processes(client_);
    if (processes.ok()) {
      model_.Update(*std::move(processes), base::Now());
      // The last line shows the keys again.
      if (std::exchange(was_refused_, false)) model_.Say("");
    } else {
      was_refused_ = true;
      model_.Say(std::string(processes.status().message()));
    }
  }

  void Dump() {
    SayAtOnce("writing a dump ...");
    const absl::StatusOr<std::string> path = PostDump(client_, model_.selected());
    model_.Say(path.ok() ? absl::StrCat("wrote ", base::Printable(*path)) : std::string(path.status().message()));
  }

  void Mark() {
    const absl::Status marked = PostMark(client_, model_.mark(), model_.selected());
    model_.Say(marked.ok() ? "marked" : std::string(marked.message()));
  }

  void SayAtOnce(const char* message) {
    model_.Say(message);
    screen_.Draw(model_);
  }

  const TopFlags& flags_;
  const Client client_;
  TopModel& model_;
  const TopScreen& screen_;
  bool was_refused_ = false;
};

int ShowOnce(const TopFlags& flags, TopModel& model) {
  if (!flags.subject.empty()) {
    const absl::StatusOr<Paths> paths = PathsOf(flags.socket, flags.subject, 0);
    return Report(paths.ok() ? WriteWholeFile("-", paths->text) : paths.status());
  }
  const Client client(flags.socket);
  absl::StatusOr<std::vector<TopProcess>> processes = Processes(client);
  if (!processes.ok()) return Report(processes.status());
  model.Update(*std::move(processes), base::Now());
  return Report(WriteWholeFile("-", model.Table()));
}

int ShowTop(const TopFlags& flags) {
  TopModel model;
  model.SortBy(flags.sort);
  if (flags.once) return ShowOnce(flags, model);
  // Without a daemon or the process, the terminal stays as it is.
  if (flags.subject.empty()) {
    if (const auto processes = Processes(Client(flags.socket)); !processes.ok()) return Report(processes.status());
  } else if (const auto paths = PathsOf(flags.socket, flags.subject, 0); !paths.ok()) {
    return Report(paths.status());
  }
  absl::StatusOr<std::unique_ptr<TopScreen>> screen = TopScreen::Open();
  if (!screen.ok()) return Report(screen.status());
  Top top(flags, model, **screen);
  if (!flags.subject.empty()) top.ShowPaths(flags.subject);
  return top.Run();
}

}  // namespace

void AddTop(CommandLine& line) {
  Command command = line.AddCommand("top", "show the processes of the daemon and what holds their memory, live");
  auto flags = std::make_shared<TopFlags>();
  command.Add("SUBJECT", flags->subject, "begin with the call paths of this process: a PID, or its command").Type("");
  command.AddFlag("--once", flags->once, "print the table once and exit, for scripts");
  command.Add("--sort", flags->sort, "sort by live (default), growth, rss, peak, rate, lost, pid or command")
      .OneOf({"live", "growth", "rss", "peak", "rate", "lost", "pid", "command"})
      .Type("COLUMN");
  command.Add("--delay", flags->delay, "look every N seconds (default: 2)").Type("N").AboveZero();
  AddSocketOption(command, flags->socket);
  command.Runs([flags] { return ShowTop(*flags); });
}

}  // namespace heaptap::cli
