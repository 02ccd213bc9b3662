// SPDX-License-Identifier: Apache-2.0
//
// heaptap run: starts a program and records it and its children from their first allocation.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/base/messages.h"
#include "userspace/cli/recording.h"
#include "userspace/cli/show/short_report.h"
#include "userspace/cli/words/command_line.h"
#include "userspace/cli/words/commands.h"
#include "userspace/cli/words/exit_status.h"
#include "userspace/process/handle.h"
#include "userspace/process/preload.h"
#include "userspace/process/sanitizers.h"
#include "userspace/recording/recorder.h"

namespace heaptap::cli {
namespace {

// The most processes that one message names.
constexpr size_t kMaxNames = 8;

struct RunFlags {
  RecordingFlags recording;
  bool guest = false;
  std::vector<std::string> only;
  std::vector<std::string> command;
};

// A child that waits for Exec. Everything that it needs is made before the fork, because it must not allocate.
class Child {
 public:
  static absl::StatusOr<Child> Fork(const std::vector<std::string>& command, const Signals& signals,
                                    const Priority& priority);

  pid_t pid() const { return pid_; }
  // Lets the child exec. Returns 0, or the errno value of exec; in that case the child is gone.
  int Exec();

 private:
  Child(pid_t pid, base::FileDescriptor go, base::FileDescriptor error)
      : pid_(pid), go_(std::move(go)), error_(std::move(error)) {}
  pid_t pid_;
  base::FileDescriptor go_;     // a byte: exec; closed without one: give up
  base::FileDescriptor error_;  // receives an errno value, or is closed by exec
};

absl::StatusOr<Child> Child::Fork(const std::vector<std::string>& command, const Signals& signals,
                                  const Priority& priority) {
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  int go[2];
  int error[2];
  if (pipe2(go, O_CLOEXEC) != 0 || pipe2(error, O_CLOEXEC) != 0) {
    return absl::UnavailableError(absl::StrCat("pipe: ", strerror(errno)));
  }
  const pid_t pid = fork();
  if (pid < 0) return absl::UnavailableError(absl::StrCat("fork: ", strerror(errno)));
  if (pid == 0) {
    close(go[1]);
    char word;
    if (read(go[0], &word, 1) != 1) _exit(kFailure);
    signals.Restore();
    priority.Restore();
    execvp(arguments[0], arguments.data());
    const int number = errno;
    [[maybe_unused]] const ssize_t put = write(error[1], &number, sizeof(number));
    _exit(kFailure);
  }
  close(go[0]);
  close(error[1]);
  return Child(pid, base::FileDescriptor(go[1]), base::FileDescriptor(error[0]));
}

int Child::Exec() {
  if (write(go_.get(), "x", 1) != 1) return errno;
  int number = 0;
  ssize_t got;
  while ((got = read(error_.get(), &number, sizeof(number))) < 0 && errno == EINTR) {
  }
  return got == sizeof(number) ? number : 0;
}

// Attaches to the library, and to sampled allocators in the program's own files.
absl::Status AttachFiles(recording::Recorder& recorder, const std::string& library, const std::string& command,
                         const std::vector<std::string>& files) {
  absl::StatusOr<bool> attached = recorder.AttachFile(library);
  if (!attached.ok()) return attached.status();
  if (!*attached) {
    return absl::FailedPreconditionError(
        absl::StrCat(library, " has no probes of a sampled allocator; build or install heaptap again"));
  }
  recorder.ReadAhead(files);
  bool has_own = false;
  for (const std::string& file : files) {
    const absl::StatusOr<bool> own = recorder.AttachFile(file);
    if (absl::IsInvalidArgument(own.status())) {
      base::Say(absl::StrCat(base::AsciiOnly(own.status().message()), "; this file is skipped"));
    }
    has_own |= own.ok() && *own;
  }
  if (const std::string why = process::WhyNotPreloadable(command); !has_own && !why.empty()) {
    base::Say(absl::StrCat("nothing can be preloaded into ", base::AsciiOnly(command), ", because ", why,
                           "; only programs that it starts may be recorded"));
  }
  return absl::OkStatus();
}

// A child keeps its PID until it is waited for.
std::optional<int> TakeExitStatus(pid_t pid) {
  int status;
  if (waitpid(pid, &status, WNOHANG) != pid) return std::nullopt;
  return WIFSIGNALED(status) ? kSignalled + WTERMSIG(status) : WEXITSTATUS(status);
}

// Passes signals on until the child has ended, or until a second SIGINT or SIGTERM. Returns the exit status.
int Follow(recording::Recorder& recorder, Signals& signals, pid_t child) {
  bool asked_to_end = false;
  for (;;) {
    WaitAndPump(recorder, {signals.fd()}, absl::InfiniteDuration());
    for (const signalfd_siginfo& signal : signals.Take()) {
      const int number = static_cast<int>(signal.ssi_signo);
      if (number == SIGUSR1) {
        recorder.DumpAll(HEAPTAP_DUMP_MANUAL);
        continue;
      }
      if (number == SIGCHLD) continue;
      const bool is_end = number == SIGINT || number == SIGTERM;
      if (is_end && asked_to_end) return kSignalled + number;
      asked_to_end |= is_end;
      // The terminal sends its signals to the child as well.
      if (signal.ssi_code != SI_KERNEL) kill(child, number);
    }
    if (const std::optional<int> status = TakeExitStatus(child); status.has_value()) {
      recorder.Pump();
      return *status;
    }
  }
}

// Says which processes of the program go on without being recorded.
void SaySurvivors(std::vector<recording::Recorder::Survivor> survivors) {
  std::erase_if(survivors, [](const recording::Recorder::Survivor& one) {
    const absl::StatusOr<base::FileDescriptor> pidfd = process::OpenPidfd(one.pid);
    return !pidfd.ok() || IsReadable(pidfd->get());
  });
  if (survivors.empty()) return;
  if (survivors.size() == 1) {
    const recording::Recorder::Survivor& one = survivors.front();
    return base::Say(absl::StrCat("process ", one.pid, " (", one.name,
                                  ") goes on and is not recorded any more; heaptap attach ", one.pid,
                                  " records it again"));
  }
  std::vector<std::string> names;
  for (const recording::Recorder::Survivor& one : survivors) {
    if (names.size() == kMaxNames) {
      names.emplace_back("...");
      break;
    }
    names.push_back(absl::StrCat(one.pid, " (", one.name, ")"));
  }
  base::Say(absl::StrCat(survivors.size(), " processes go on and are not recorded any more: ",
                         absl::StrJoin(names, ", "), "; heaptap attach PID records one of them again"));
}

bool IsNumber(const std::string& word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), absl::ascii_isdigit);
}

int Run(const RunFlags& flags) {
  absl::StatusOr<recording::RecorderOptions> options = MakeRecorderOptions(flags.recording);
  if (!options.ok()) return Report(options.status());
  if (flags.guest) options->counts = false;
  options->follow = true;
  options->only = flags.only;
  const process::Library which = flags.guest ? process::Library::kGuest : process::Library::kAllocator;
  absl::StatusOr<std::string> library = process::FindLibrary(which);
  if (!library.ok()) return Report(library.status());
  if (absl::Status status = process::CheckPreload(which, *library); !status.ok()) return Report(status);
  const std::vector<std::string> files = process::FilesOfProgram(flags.command[0]);
  if (absl::Status status = process::CheckSanitizer(which, files); !status.ok()) return Report(status);

  Signals signals({SIGUSR1, SIGUSR2, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD});
  if (!signals.status().ok()) return Report(signals.status());
  Priority priority;
  absl::StatusOr<std::unique_ptr<recording::Recorder>> recorder = recording::Recorder::Start(*options);
  if (!recorder.ok()) return Report(RightsFirst(recorder.status(), "heaptap run"));
  process::SetPreloadEnvironment(*library, options->policy.lg_sample, options->counts);
  absl::StatusOr<Child> child = Child::Fork(flags.command, signals, priority);
  if (!child.ok()) return Report(child.status());
  if (absl::Status status = (*recorder)->RecordChild(child->pid()); !status.ok()) return Report(status);
  if (absl::Status status = AttachFiles(**recorder, *library, flags.command[0], files); !status.ok()) {
    return Report(status);
  }

  if (const int error = child->Exec(); error != 0) {
    base::Say(absl::StrCat("cannot run ", base::AsciiOnly(flags.command[0]), ": ", strerror(error)));
    return error == ENOENT ? kNotFound : kNotExecutable;
  }
  const int status = Follow(**recorder, signals, child->pid());
  std::vector<recording::Recorder::Survivor> survivors = (*recorder)->Finish();
  const bool is_explained = !process::WhyNotPreloadable(flags.command[0]).empty();
  if (const std::string line = (*recorder)->dumps().WithoutSamples(is_explained); !line.empty()) base::Say(line);
  if (const std::string line = (*recorder)->dumps().WithoutAllocator(is_explained); !line.empty()) base::Say(line);
  if (const std::string line = (*recorder)->dumps().MostLive(); !line.empty()) base::Say(line);
  if (const std::string line = (*recorder)->dumps().Highest(); !line.empty()) base::Say(line);
  SaySurvivors(std::move(survivors));
  if (!(*recorder)->dumps().recorded_any()) {
    base::Say(absl::StrCat(
        "nothing was recorded: no process of ", base::AsciiOnly(flags.command[0]),
        flags.only.empty() && is_explained ? " had a sampled allocator"
        : flags.only.empty()
            ? " had a sampled allocator; is it statically linked with another malloc, set-user-ID, or started with "
              "an empty environment (env -i)?"
            : absl::StrCat(" with a name like ", base::AsciiOnly(absl::StrJoin(flags.only, " or ")),
                           " had a sampled allocator")));
  }
  if (const std::string path = (*recorder)->dumps().largest_dump();
      !path.empty() && WantsShortReport(flags.recording.report)) {
    signals.Restore();
    priority.Restore();
    SayShortReport(path, {});
  }
  return status == kSuccess && (*recorder)->failed() ? kFailure : status;
}

}  // namespace

void AddRun(CommandLine& line, const std::vector<std::string>& program) {
  Command command = line.AddCommand(
      "run", "run a program with a library of heaptap, record it and its children, and dump each at its end");
  auto flags = std::make_shared<RunFlags>();
  AddRecordingOptions(command, flags->recording);
  command.AddFlag("--guest", flags->guest,
                  "keep the program's own allocator: preload libheaptap-guest.so, before what LD_PRELOAD has");
  command
      .Add("--only", flags->only,
           "dump only processes with this name (comm, as ps -o comm shows it; * and ? are wildcards)")
      .Type("NAME");
  command.EndsAtFirstWord();
  command.Footer("Put the program and its arguments after --.");
  command.Runs([flags, command, program] {
    // Without "--" the program starts at the first word that is not an option.
    flags->command = command.Rest();
    if (!flags->command.empty() && flags->command[0][0] == '-') {
      base::Say("run: unknown option " + base::AsciiOnly(flags->command[0]) + "; see heaptap run --help");
      return static_cast<int>(kUsage);
    }
    // After the program's name, "--" is an ordinary argument.
    const bool is_divided = flags->command.empty() && !program.empty();
    if (!is_divided && !flags->command.empty() && command.IsGiven("--high-water") && IsNumber(flags->command[0])) {
      base::Say(absl::StrCat("run: the percentage of --high-water needs a =: use --high-water=", flags->command[0]));
      return static_cast<int>(kUsage);
    }
    flags->command.insert(flags->command.end(), program.begin() + (is_divided ? 1 : 0), program.end());
    if (flags->command.empty()) {
      base::Say("run: no program given; use heaptap run [OPTIONS] -- PROGRAM [ARGUMENTS]");
      return static_cast<int>(kUsage);
    }
    return Run(*flags);
  });
}

}  // namespace heaptap::cli
