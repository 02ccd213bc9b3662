// SPDX-License-Identifier: Apache-2.0
//
// heaptap attach: records a running process for a while.
#include <signal.h>
#include <stdlib.h>
#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/messages.h"
#include "userspace/cli/ask/find_process.h"
#include "userspace/cli/recording.h"
#include "userspace/cli/show/short_report.h"
#include "userspace/cli/words/command_line.h"
#include "userspace/cli/words/commands.h"
#include "userspace/cli/words/exit_status.h"
#include "userspace/doctor/checkup.h"
#include "userspace/recording/recorder.h"

namespace heaptap::cli {
namespace {

struct AttachFlags {
  RecordingFlags recording;
  std::string process;
  pid_t pid = 0;
  double seconds = 0;
};

// The error of RecordRunning, with doctor's advice if the process has no library of heaptap.
absl::Status WithAdvice(const absl::Status& status, pid_t pid) {
  // Other processes are gone, or have a library that takes no samples, which the message says.
  if (!absl::StrContains(status.message(), "has no sampled allocator")) return status;
  for (const daemon::Finding& finding : daemon::CheckProcess(pid)) {
    if (finding.subject != "sampled allocator" || finding.status.ok() || finding.remedy.empty()) continue;
    return absl::NotFoundError(
        absl::StrCat("process ", pid, " (", process::NameOf(pid), ") has no sampled allocator: ", finding.remedy));
  }
  return status;
}

int Attach(const AttachFlags& flags) {
  absl::StatusOr<recording::RecorderOptions> options = MakeRecorderOptions(flags.recording);
  if (!options.ok()) return Report(options.status());
  options->follow = false;
  Signals signals({SIGUSR1, SIGINT, SIGTERM, SIGHUP});
  if (!signals.status().ok()) return Report(signals.status());
  Priority priority;
  absl::StatusOr<std::unique_ptr<recording::Recorder>> recorder = recording::Recorder::Start(*options);
  if (!recorder.ok()) return Report(RightsFirst(recorder.status(), "heaptap attach"));
  // The descriptor becomes readable at the end of the process even if the kernel dropped the event.
  const absl::StatusOr<base::FileDescriptor> pidfd = process::OpenPidfd(flags.pid);
  if (!pidfd.ok() && !absl::IsNotFound(pidfd.status())) return Report(pidfd.status());
  if (absl::Status status = (*recorder)->RecordRunning(flags.pid); !status.ok()) {
    return Report(WithAdvice(status, flags.pid));
  }
  base::Say(absl::StrCat("attached to ", flags.pid, " (", process::NameOf(flags.pid),
                         "); SIGUSR1 writes a dump, SIGINT writes the last one and ends"));

  const base::Instant begin = base::Now();
  const base::Instant end = flags.seconds > 0 ? begin + absl::Seconds(flags.seconds) : base::Instant::InfiniteFuture();
  for (bool go_on = true; go_on && base::Now() < end;) {
    WaitAndPump(**recorder, {signals.fd(), pidfd.ok() ? pidfd->get() : -1}, end - base::Now());
    for (const signalfd_siginfo& signal : signals.Take()) {
      if (signal.ssi_signo == SIGUSR1) {
        (*recorder)->DumpAll(HEAPTAP_DUMP_MANUAL);
      } else {
        go_on = false;
      }
    }
    const bool ended = !pidfd.ok() || IsReadable(pidfd->get());
    if (ended) (*recorder)->Pump();
    if (ended || !(*recorder)->IsRecorded(flags.pid)) {
      base::Say(absl::StrCat("process ", flags.pid, " has ended"));
      go_on = false;
    }
  }
  (*recorder)->Finish();
  base::Say((*recorder)->dumps().StackSummary());
  if (const std::string line = (*recorder)->dumps().Highest(); !line.empty()) base::Say(line);
  if (const std::string path = (*recorder)->dumps().largest_dump();
      !path.empty() && WantsShortReport(flags.recording.report)) {
    const bool is_there = pidfd.ok() && !IsReadable(pidfd->get());
    signals.Restore();
    priority.Restore();
    SayShortReport(path, {.pid = is_there ? flags.pid : 0, .recorded_for = base::Now() - begin});
  }
  return (*recorder)->failed() ? kFailure : kSuccess;
}

}  // namespace

void AddAttach(CommandLine& line) {
  Command command = line.AddCommand(
      "attach", "record a running process with libheaptap.so or another sampled allocator, and dump it at the end");
  auto flags = std::make_shared<AttachFlags>();
  const Option process = AddProcessWord(command, flags->process, "record this process");
  command.Add("-p,--pid", flags->pid, "record this process (same as the argument PROCESS)")
      .Type("PID")
      .AboveZero()
      .Excludes(process);
  command
      .Add("-d,--duration", flags->seconds,
           "stop after this time (default: at SIGINT, at SIGTERM, or when the process ends)")
      .Type("SECONDS")
      .AboveZero();
  AddRecordingOptions(command, flags->recording);
  command.Runs([flags] {
    if (!flags->process.empty()) {
      const absl::StatusOr<pid_t> found = FindPreloaded(flags->process);
      if (!found.ok()) return Report(found.status());
      flags->pid = *found;
    }
    if (flags->pid == 0) {
      return Report(absl::InvalidArgumentError("attach: expected a process; use heaptap attach PID"));
    }
    return Attach(*flags);
  });
}

}  // namespace heaptap::cli
