// SPDX-License-Identifier: Apache-2.0
//
// heaptap daemon: records every process of the machine that uses a sampled allocator, and answers clients.
#include "userspace/daemon/daemon.h"

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/messages.h"
#include "userspace/base/mutex.h"
#include "userspace/base/printable_text.h"
#include "userspace/base/threads.h"
#include "userspace/bpf/kernel_books.h"
#include "userspace/bpf/kernel_error.h"
#include "userspace/bpf/pins.h"
#include "userspace/cli/ask/client.h"
#include "userspace/cli/recording.h"
#include "userspace/cli/words/command_line.h"
#include "userspace/cli/words/commands.h"
#include "userspace/cli/words/configuration_file.h"
#include "userspace/cli/words/exit_status.h"
#include "userspace/cli/words/shell_word.h"
#include "userspace/daemon/historian.h"
#include "userspace/daemon/library_watch.h"
#include "userspace/daemon/notify.h"
#include "userspace/process/control_block.h"
#include "userspace/process/handle.h"
#include "userspace/process/preload.h"
#include "userspace/process/session_niceness.h"
#include "userspace/process/short_file.h"

namespace heaptap::cli {
namespace {

constexpr char kConfiguration[] = "/etc/heaptap/heaptap.conf";
constexpr char kGroup[] = "heaptap";
constexpr char kDefaultStateFolder[] = "/var/lib/heaptap";

// A daemon that ends removes its probes and restores control blocks.
constexpr absl::Duration kEndPatience = absl::Seconds(60);

struct DaemonFlags {
  RecordingFlags recording;
  std::string configuration = kConfiguration;
  std::string state_folder = kDefaultStateFolder;
  std::string socket = kDefaultSocket;
  std::string listen;
  std::string group;
  std::string pin_folder = kDefaultPinFolder;
  std::vector<std::string> libraries;
  std::vector<std::string> only_libraries;
  std::vector<std::string> groups;
  std::vector<std::string> rules;
  std::string every;
  std::string dump_at_exit = "fatal";
  std::string max_age = "168h";
  uint64_t max_files = 1000;
  uint64_t max_bytes = uint64_t{1} << 30;
  uint32_t max_live = 0;
  uint32_t max_contexts = 0;
  double budget = 2;
  bool budget_given = false;
  std::string history;  // "": in the state folder
  uint64_t history_bytes = history::kDefaultBytes;
  std::string history_interval = "10s";
  bool end = false;
};

void AddOptions(Command command, DaemonFlags& flags) {
  command
      .Add("--config", flags.configuration,
           absl::StrCat("read options from this file, one per line (default: ", kConfiguration, ")"))
      .Type("FILE")
      .CommandLineOnly();
  command.AddFlag("--end", flags.end, "end the running daemon, if any, and the recording in the kernel; then exit")
      .CommandLineOnly();
  command.Add("--state-dir", flags.state_folder, "write dumps and state to this folder (default: /var/lib/heaptap)")
      .Type("DIR");
  command.Add("--socket", flags.socket, "listen for clients on this socket (default: /run/heaptap/heaptap.sock)")
      .Type("PATH");
  command
      .Add("--listen", flags.listen,
           "also serve HTTP on this loopback address, with full access for every user of this machine")
      .Type("ADDR:PORT");
  command.Add("--group", flags.group, "give members of this group full access (default: heaptap, if that group exists)")
      .Type("NAME");
  command
      .Add("--pin-dir", flags.pin_folder,
           "keep the recording in this folder of a BPF file system when the daemon ends (default: "
           "/sys/fs/bpf/heaptap; none: end the recording with the daemon)")
      .Type("DIR");
  command
      .Add("--library", flags.libraries,
           "attach to this library of heaptap before any process maps it (others are found when they are mapped)")
      .Type("FILE");
  command
      .Add("--only-library", flags.only_libraries,
           "attach to this library or program and, besides other files given like this or with --library, to no other")
      .Type("FILE");
  command
      .Add("--cgroup", flags.groups,
           "record only processes in this control group (version 2) and those below it; others do not even reach the "
           "daemon")
      .Type("DIR");
  AddSamplingOptions(command, flags.recording);
  command.Add("--every", flags.every, "also dump every process at this interval (90s, 10m, 1h30m)").Type("TIME");
  command
      .Add("--dump-at-exit", flags.dump_at_exit,
           "write a last dump of a process: always; fatal (default): if a signal or the OOM killer ended it; never")
      .Type("WHEN");
  command
      .Add("--rule", flags.rules,
           "set options for some processes, e.g. 'comm=redis* lg-sample=16 every=1h'; the first matching rule applies")
      .Type("RULE");
  command.Add("--max-age", flags.max_age, "remove dumps older than this (default: 168h; 0: no limit)").Type("TIME");
  command.Add("--max-files", flags.max_files, "keep at most N dumps (default: 1000; 0: no limit)").Type("N");
  command.Add("--max-bytes", flags.max_bytes, "keep at most this many bytes of dumps (default: 1G; 0: no limit)")
      .Type("BYTES")
      .Bytes();
  command
      .Add("--history", flags.history,
           "keep the history of all processes in this database (default: /var/lib/heaptap/history.db, or in the "
           "folder of --state-dir; none: keep no history)")
      .Type("FILE");
  command
      .Add("--history-bytes", flags.history_bytes, "limit the history to this many bytes (default: 500M; at least 1M)")
      .Type("BYTES")
      .Bytes();
  command
      .Add("--history-interval", flags.history_interval,
           "look at all processes for the history at this interval (default: 10s; 100ms to 10m)")
      .Type("TIME");
  command
      .Add("--max-live", flags.max_live, "limit the live samples of one process (default: as many as are still free)")
      .Type("N");
  command
      .Add("--max-contexts", flags.max_contexts,
           "limit the call paths, by thread, of one process (default: as many as are still free)")
      .Type("N");
  command
      .Add("--budget", flags.budget,
           "limit the CPU time of all probes to this percentage of one core, by taking rarer, heavier samples "
           "(default: 2, no limit with --exact; 0: no limit)")
      .Type("PERCENT")
      .NotNegative();
}

struct DaemonOptions {
  recording::RecorderOptions recording;
  http::ServerOptions http;
  daemon::HistoryOptions history;
};

// Sets the option `name` of the policy.
absl::Status SetSetting(absl::string_view name, absl::string_view value, recording::Policy& policy) {
  if (value.empty()) return absl::OkStatus();
  absl::Status status = recording::SetPolicy(name, value, policy);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat("--", name, " ", value, ": ", status.message()));
}

absl::StatusOr<absl::Duration> ParseAge(const std::string& text) {
  absl::Duration age;
  if (absl::ParseDuration(text, &age) && age >= absl::ZeroDuration()) return age;
  return absl::InvalidArgumentError(
      absl::StrCat("--max-age ", text, ": expected a duration, such as 90s, 10m or 168h"));
}

// The command that ends this recording and finds its state.
std::string EndCommand(const DaemonFlags& flags) {
  const auto words = [](absl::string_view option, const std::string& folder, absl::string_view usual) {
    return folder == usual ? "" : absl::StrCat(" ", option, " ", ShellWord(base::Printable(folder)));
  };
  return absl::StrCat("heaptap daemon --end", words("--pin-dir", flags.pin_folder, kDefaultPinFolder),
                      words("--state-dir", flags.state_folder, kDefaultStateFolder));
}

absl::StatusOr<daemon::HistoryOptions> MakeHistory(const DaemonFlags& flags) {
  daemon::HistoryOptions options;
  if (flags.history != "none") {
    options.path = flags.history.empty() ? absl::StrCat(flags.state_folder, "/history.db") : flags.history;
  }
  options.most_bytes = flags.history_bytes;
  if (options.most_bytes < history::kLeastBytes) {
    return absl::InvalidArgumentError(absl::StrCat("--history-bytes ", flags.history_bytes,
                                                   ": expected at least 1M; --history none keeps no history"));
  }
  const bool is_duration = absl::ParseDuration(flags.history_interval, &options.interval);
  if (!is_duration || options.interval < absl::Milliseconds(100) || options.interval > absl::Minutes(10)) {
    return absl::InvalidArgumentError(absl::StrCat("--history-interval ", base::Printable(flags.history_interval),
                                                   ": expected a duration from 100ms to 10m, such as 10s"));
  }
  return options;
}

absl::StatusOr<std::optional<gid_t>> FindGroup(const std::string& name) {
  const group* found = getgrnam(name.empty() ? kGroup : name.c_str());
  if (found != nullptr) return found->gr_gid;
  if (name.empty()) return std::nullopt;
  return absl::InvalidArgumentError(absl::StrCat("--group ", name, ": there is no such group"));
}

absl::StatusOr<DaemonOptions> MakeOptions(const DaemonFlags& flags) {
  absl::StatusOr<recording::RecorderOptions> recording = MakeRecorderOptions(flags.recording);
  if (!recording.ok()) return recording.status();
  recording->follow = true;
  // A child that maps an area of its parent keeps it in memory, and no user's account pays for that.
  recording->counts = false;
  recording::Policy& policy = recording->policy;
  policy.max_live = flags.max_live;
  policy.max_contexts = flags.max_contexts;
  if (absl::Status status = SetSetting("every", flags.every, policy); !status.ok()) return status;
  if (absl::Status status = SetSetting("dump-at-exit", flags.dump_at_exit, policy); !status.ok()) return status;
  absl::StatusOr<recording::Rules> rules = recording::Rules::Parse(flags.rules, policy);
  if (!rules.ok()) return rules.status();
  absl::StatusOr<absl::Duration> age = ParseAge(flags.max_age);
  if (!age.ok()) return age.status();
  absl::StatusOr<std::optional<gid_t>> group = FindGroup(flags.group);
  if (!group.ok()) return group.status();

  recording::SystemWide system_wide;
  system_wide.rules = *std::move(rules);
  system_wide.state_folder = flags.state_folder;
  system_wide.pin_folder = flags.pin_folder == "none" ? "" : flags.pin_folder;
  system_wide.end_command = EndCommand(flags);
  system_wide.groups = flags.groups;
  system_wide.libraries = flags.libraries;
  system_wide.only_libraries = !flags.only_libraries.empty();
  system_wide.libraries.insert(system_wide.libraries.end(), flags.only_libraries.begin(), flags.only_libraries.end());
  if (!system_wide.only_libraries) {
    system_wide.preloaded = process::PathsInPreloadFile(process::ReadShortFile(process::kPreloadFile));
  }
  // Most processes will use the daemon's own libraries.
  for (const process::Library which : {process::Library::kAllocator, process::Library::kGuest}) {
    if (system_wide.only_libraries) break;
    if (absl::StatusOr<std::string> library = process::FindLibrary(which); library.ok()) {
      system_wide.libraries.push_back(*std::move(library));
    }
  }
  system_wide.retention = {.max_age = *age, .max_files = flags.max_files, .max_bytes = flags.max_bytes};
  // A default budget must not thin out an exact recording.
  const bool is_exact = policy.lg_sample == uint32_t{0} && !flags.budget_given;
  system_wide.budget = is_exact ? 0 : flags.budget / 100;
  recording->system_wide = std::move(system_wide);
  const absl::StatusOr<daemon::HistoryOptions> history = MakeHistory(flags);
  if (!history.ok()) return history.status();
  return DaemonOptions{
      *std::move(recording), {.socket_path = flags.socket, .listen = flags.listen, .group = *group}, *history};
}

// Adds the configuration file's options to those of the command line.
absl::Status ReadConfiguration(Command command, DaemonFlags& flags) {
  absl::Status status = ApplyConfigurationFile(flags.configuration, command);
  flags.budget_given = command.IsGiven("--budget");
  if (absl::IsNotFound(status) && !command.IsGiven("--config")) return absl::OkStatus();
  return status;
}

// Parses the command line and the configuration file again.
absl::StatusOr<DaemonOptions> ReadOptionsAgain(const std::vector<std::string>& arguments) {
  CommandLine line;
  DaemonFlags flags;
  const Command command = line.AddCommand("daemon", "");
  AddOptions(command, flags);
  if (absl::Status status = line.Parse(arguments); !status.ok()) return status;
  if (absl::Status status = ReadConfiguration(command, flags); !status.ok()) return status;
  return MakeOptions(flags);
}

absl::Status MakeFolder(const std::string& path, mode_t mode) {
  if (mkdir(path.c_str(), mode) == 0 || errno == EEXIST) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("cannot create ", path, ": ", strerror(errno)));
}

// Root trusts the contents of this folder, so only root may write to it.
absl::Status CheckStateFolder(const std::string& path) {
  struct stat status;
  if (lstat(path.c_str(), &status) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("cannot use ", path, ": ", strerror(errno)));
  }
  if (S_ISDIR(status.st_mode) && status.st_uid == geteuid() && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      path, " must be a folder that belongs to root and is writable for root only; choose another with --state-dir"));
}

absl::Status MakeFolders(const DaemonFlags& flags) {
  if (absl::Status status = MakeFolder(flags.state_folder, 0700); !status.ok()) return status;
  if (absl::Status status = CheckStateFolder(flags.state_folder); !status.ok()) return status;
  const size_t slash = flags.socket.rfind('/');
  return slash == std::string::npos || slash == 0 ? absl::OkStatus() : MakeFolder(flags.socket.substr(0, slash), 0755);
}

// Ends the daemon that uses the folder of pins, if there is one, and its recording.
absl::Status EndDaemon(const DaemonFlags& flags) {
  const pid_t pid = bpf::Pins::Holder(flags.pin_folder);
  if (pid <= 0) return absl::OkStatus();
  // Check the name: the PID may have been reused since the daemon locked the folder.
  const base::FileDescriptor daemon(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!daemon.valid() || process::NameOf(pid) != process::kCollectorName) return absl::OkStatus();
  if (syscall(SYS_pidfd_send_signal, daemon.get(), SIGINT, nullptr, 0) != 0 && errno != ESRCH) {
    return absl::PermissionDeniedError(absl::StrCat("cannot end the daemon, process ", pid, ": ", strerror(errno)));
  }
  WaitFor({daemon.get()}, base::Now() + kEndPatience);
  if (IsReadable(daemon.get())) {
    base::Say(absl::StrCat("the daemon, process ", pid, ", has ended"));
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError(absl::StrCat("the daemon, process ", pid, ", did not end within ",
                                                  absl::FormatDuration(kEndPatience), "; run kill -KILL ", pid,
                                                  ", then ", EndCommand(flags), " again"));
}

int End(const DaemonFlags& flags, DaemonOptions options) {
  if (options.recording.system_wide->pin_folder.empty()) return kSuccess;
  if (absl::Status status = EndDaemon(flags); !status.ok()) return Report(status);
  options.recording.system_wide->shall_end = true;
  {
    absl::StatusOr<bpf::Pins> pins = bpf::Pins::Open(flags.pin_folder, bpf::KernelBooks::Layout());
    if (!pins.ok()) return Report(pins.status());
    if (pins->Names().empty() && pins->OtherLayouts().empty()) {
      pins->RemoveAll();
      base::Say(absl::StrCat("there is no recording in ", flags.pin_folder));
      return kSuccess;
    }
  }
  absl::StatusOr<std::unique_ptr<recording::Recorder>> recorder = recording::Recorder::Start(options.recording);
  if (!recorder.ok()) return Report(recorder.status());
  (*recorder)->End();
  base::Say("the recording has ended");
  return kSuccess;
}

void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Reads the configuration again, in a thread: looking up a user or a group can take long.
class Rereading {
 public:
  void Start(const std::vector<std::string>& arguments) {
    result_ = std::make_shared<Result>();
    absl::StatusOr<std::thread> thread = base::StartThread([result = result_, arguments] {
      absl::StatusOr<DaemonOptions> options = ReadOptionsAgain(arguments);
      base::MutexLock lock(&result->mutex);
      result->options = std::move(options);
    });
    if (thread.ok()) return thread->detach();  // the program may end before the thread does
    base::MutexLock lock(&result_->mutex);
    result_->options = thread.status();
  }
  // What the last Start has read, returned once. None: there is nothing new.
  std::optional<absl::StatusOr<DaemonOptions>> Take() {
    if (result_ == nullptr) return std::nullopt;
    base::MutexLock lock(&result_->mutex);
    return std::exchange(result_->options, std::nullopt);
  }

 private:
  struct Result {
    base::Mutex mutex;
    std::optional<absl::StatusOr<DaemonOptions>> options ABSL_GUARDED_BY(mutex);
  };
  std::shared_ptr<Result> result_;  // of the last Start
};

void Reload(daemon::Daemon& daemon, daemon::LibraryWatch& libraries, absl::StatusOr<DaemonOptions> options) {
  if (!options.ok()) {
    return base::Say(absl::StrCat(options.status().message(), "; the configuration is unchanged"));
  }
  recording::SystemWide& system_wide = *options->recording.system_wide;
  libraries.Use(system_wide);
  // An upgrade may have replaced the files.
  if (const absl::Status status = daemon.recorder().AttachLibraries(system_wide); !status.ok()) {
    base::Say(status.message());
  }
  daemon.recorder().everyone().SetRules(*std::move(system_wide.rules), options->recording.policy, system_wide.retention,
                                        system_wide.budget);
  base::Say("reloaded rules, rates, triggers, retention and budget; other options take effect at the next start");
}

int Serve(const DaemonFlags& flags, const DaemonOptions& options, const std::vector<std::string>& arguments) {
  const daemon::ServiceManager manager;
  // nohup ignores SIGHUP, which here means to reload the configuration.
  signal(SIGHUP, SIG_DFL);
  Signals signals({SIGUSR1, SIGUSR2, SIGINT, SIGTERM, SIGHUP});
  if (!signals.status().ok()) return Report(signals.status());
  // The thread starts after the signals are blocked: a thread that does not block them would take them.
  const base::MessageThread messages;
  Priority priority;
  process::UseNicenessForSession();
  RaiseDescriptorLimit();
  absl::StatusOr<std::unique_ptr<daemon::Daemon>> started =
      daemon::Daemon::Start(options.recording, options.http, options.history);
  if (!started.ok()) return Report(started.status());
  daemon::Daemon& daemon = **started;
  // With port 0 the kernel chooses the port.
  const std::string address = flags.listen.substr(0, flags.listen.rfind(':'));
  base::Say(absl::StrCat("recording; clients at ", flags.socket,
                         daemon.port() == 0 ? "" : absl::StrCat(" and http://", address, ":", daemon.port()),
                         ", dumps in ", flags.state_folder));
  if (const absl::Status scope = process::CheckPtraceScope(); !scope.ok()) {
    base::Say(absl::StrCat("rates of running processes cannot be set: ", scope.message()));
  }
  daemon::LibraryWatch libraries(daemon.recorder());
  libraries.Use(*options.recording.system_wide);
  manager.NotifyReady();
  Rereading rereading;
  base::Instant alive = base::Now();
  for (;;) {
    WaitForWork(daemon.recorder(), {daemon.questions_fd(), signals.fd(), libraries.fd()},
                std::min(daemon.patience(), manager.watchdog_interval()));
    // This comes before questions are answered: a question may be whether all is done.
    libraries.Work();
    daemon.Work();
    if (const base::Instant now = base::Now(); now - alive >= manager.watchdog_interval()) {
      manager.NotifyAlive();
      alive = now;
    }
    if (std::optional<absl::StatusOr<DaemonOptions>> options = rereading.Take(); options.has_value()) {
      Reload(daemon, libraries, *std::move(options));
      manager.NotifyReady();
    }
    for (const signalfd_siginfo& signal : signals.Take()) {
      switch (signal.ssi_signo) {
        case SIGUSR1:
          daemon.DumpAll();
          break;
        case SIGUSR2:
          // The value of sigqueue(3) is a PID.
          daemon.DumpOne(signal.ssi_code == SI_QUEUE ? signal.ssi_int : 0);
          break;
        case SIGHUP:
          manager.NotifyReloading();
          rereading.Start(arguments);
          break;
        case SIGINT:
          manager.NotifyStopping();
          daemon.recorder().FinishBackground();
          daemon.recorder().End();
          base::Say("the recording has ended");
          return kSuccess;
        default:
          manager.NotifyStopping();
          daemon.recorder().FinishBackground();
          if (options.recording.system_wide->pin_folder.empty()) {
            daemon.recorder().End();
          } else {
            daemon.recorder().Leave();
            base::Say(absl::StrCat("the recording continues in the kernel (", flags.pin_folder,
                                   "): the next heaptap daemon takes it over, ", EndCommand(flags), " ends it"));
          }
          return kSuccess;
      }
    }
  }
}

}  // namespace

void AddDaemon(CommandLine& line, const std::vector<std::string>& arguments) {
  Command command = line.AddCommand(
      "daemon", "record every process with a sampled allocator and serve clients; a recording survives restarts");
  auto flags = std::make_shared<DaemonFlags>();
  AddOptions(command, *flags);
  command.Footer(
      "SIGUSR1 writes a dump of every process, SIGUSR2 of the largest (or of the PID that sigqueue(3) sends with it);\n"
      "SIGHUP reloads the configuration; SIGTERM ends the daemon, SIGINT also ends the recording.");
  command.Runs([command, flags, arguments] {
    absl::Status read = ReadConfiguration(command, *flags);
    absl::StatusOr<DaemonOptions> options = read.ok() ? MakeOptions(*flags) : read;
    if (const std::string missing = bpf::MissingCapabilities(); options.ok() && !missing.empty()) {
      options =
          absl::PermissionDeniedError(absl::StrCat("missing rights: run heaptap daemon as root, or give it ", missing));
    }
    if (options.ok()) {
      if (absl::Status made = MakeFolders(*flags); !made.ok()) options = made;
    }
    if (!options.ok()) return Report(options.status());
    return flags->end ? End(*flags, *options) : Serve(*flags, *options, arguments);
  });
}

}  // namespace heaptap::cli
