// SPDX-License-Identifier: Apache-2.0
//
// heaptap daemon: records every process of the machine that uses a sampled allocator, and answers clients.
#include "userspace/service/daemon.h"

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/bpf/kernel_error.h"
#include "userspace/bpf/pins.h"
#include "userspace/cli/client.h"
#include "userspace/cli/command_line.h"
#include "userspace/cli/commands.h"
#include "userspace/cli/configuration_file.h"
#include "userspace/cli/exit_status.h"
#include "userspace/cli/recording.h"
#include "userspace/service/control_block.h"
#include "userspace/service/messages.h"
#include "userspace/service/notify.h"
#include "userspace/service/preload.h"
#include "userspace/service/process_handle.h"

namespace heaptap::cli {
namespace {

constexpr char kConfiguration[] = "/etc/heaptap/heaptap.conf";
constexpr char kGroup[] = "heaptap";

// It takes its probes away, and puts back what it has changed in processes.
constexpr absl::Duration kEndPatience = absl::Seconds(60);

struct DaemonFlags {
  RecordingFlags recording;
  std::string configuration = kConfiguration;
  std::string state_folder = "/var/lib/heaptap";
  std::string socket = "/run/heaptap/heaptap.sock";
  std::string listen;
  std::string group;
  std::string pin_folder = kDefaultPinFolder;
  std::vector<std::string> libraries;
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
  bool end = false;
};

void AddOptions(Command command, DaemonFlags& flags) {
  command.Add("--config", flags.configuration, absl::StrCat("options, a line each (default: ", kConfiguration, ")"))
      .Type("FILE")
      .CommandLineOnly();
  command
      .AddFlag("--end", flags.end,
               "end the daemon that runs, if there is one, and the recording in the kernel; then exit")
      .CommandLineOnly();
  command.Add("--state-dir", flags.state_folder, "where dumps go (default: /var/lib/heaptap)").Type("DIR");
  command.Add("--socket", flags.socket, "for clients (default: /run/heaptap/heaptap.sock)").Type("PATH");
  command.Add("--listen", flags.listen, "HTTP by TCP too, for every user of this machine; a loopback address")
      .Type("ADDR:PORT");
  command.Add("--group", flags.group, "members may see and do all (default: heaptap, if there is such a group)")
      .Type("NAME");
  command
      .Add("--pin-dir", flags.pin_folder,
           "what stays in the kernel when the collector ends, in a BPF file system (default: "
           "/sys/fs/bpf/heaptap; none: nothing stays)")
      .Type("DIR");
  command
      .Add("--library", flags.libraries,
           "attach to this libheaptap.so before anybody maps it (others are found when they are mapped)")
      .Type("FILE");
  AddSamplingOptions(command, flags.recording);
  command.Add("--every", flags.every, "also dump every process on a schedule (90s, 10m, 1h30m)").Type("TIME");
  command
      .Add("--dump-at-exit", flags.dump_at_exit,
           "always; fatal: of processes that a signal or the OOM killer ends (default); never")
      .Type("WHEN");
  command
      .Add("--rule", flags.rules,
           "for some processes, e.g. 'comm=redis* lg-sample=16 every=1h'; the first that holds counts")
      .Type("RULE");
  command.Add("--max-age", flags.max_age, "of dumps that are kept (default: 168h; 0: any)").Type("TIME");
  command.Add("--max-files", flags.max_files, "dumps that are kept (default: 1000; 0: all)").Type("N");
  command.Add("--max-bytes", flags.max_bytes, "of dumps that are kept (default: 1G; 0: all)").Type("BYTES").Bytes();
  command.Add("--max-live", flags.max_live, "live samples of one process (default: as many as are still free)")
      .Type("N");
  command.Add("--max-contexts", flags.max_contexts, "call paths of one process, by thread (default: likewise)")
      .Type("N");
  command
      .Add("--budget", flags.budget,
           "per cent of a core that all probes together may take; beyond it samples become rarer and weigh more "
           "(default: 2, with --exact none; 0: none)")
      .Type("PERCENT")
      .NotNegative();
}

struct DaemonOptions {
  service::RecorderOptions recording;
  service::HttpOptions http;
};

// `value`: of the option `name`.
absl::Status SetSetting(absl::string_view name, absl::string_view value, service::Policy& policy) {
  if (value.empty()) return absl::OkStatus();
  absl::Status status = service::SetPolicy(name, value, policy);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat("--", name, " ", value, ": ", status.message()));
}

absl::StatusOr<absl::Duration> ParseAge(const std::string& text) {
  absl::Duration age;
  if (absl::ParseDuration(text, &age) && age >= absl::ZeroDuration()) return age;
  return absl::InvalidArgumentError(absl::StrCat("--max-age ", text, ": a time is needed, like 90s, 10m or 168h"));
}

absl::StatusOr<std::optional<gid_t>> FindGroup(const std::string& name) {
  const group* found = getgrnam(name.empty() ? kGroup : name.c_str());
  if (found != nullptr) return found->gr_gid;
  if (name.empty()) return std::nullopt;
  return absl::InvalidArgumentError(absl::StrCat("--group ", name, ": there is no such group"));
}

absl::StatusOr<DaemonOptions> MakeOptions(const DaemonFlags& flags) {
  absl::StatusOr<service::RecorderOptions> recording = MakeRecorderOptions(flags.recording);
  if (!recording.ok()) return recording.status();
  recording->follow = true;
  service::Policy& policy = recording->policy;
  policy.max_live = flags.max_live;
  policy.max_contexts = flags.max_contexts;
  if (absl::Status status = SetSetting("every", flags.every, policy); !status.ok()) return status;
  if (absl::Status status = SetSetting("dump-at-exit", flags.dump_at_exit, policy); !status.ok()) return status;
  absl::StatusOr<service::Rules> rules = service::Rules::Parse(flags.rules, policy);
  if (!rules.ok()) return rules.status();
  absl::StatusOr<absl::Duration> age = ParseAge(flags.max_age);
  if (!age.ok()) return age.status();
  absl::StatusOr<std::optional<gid_t>> group = FindGroup(flags.group);
  if (!group.ok()) return group.status();

  service::Everyone everyone;
  everyone.rules = *std::move(rules);
  everyone.state_folder = flags.state_folder;
  everyone.pin_folder = flags.pin_folder == "none" ? "" : flags.pin_folder;
  everyone.libraries = flags.libraries;
  // Its own is the one that most processes will use.
  if (absl::StatusOr<std::string> library = service::FindLibrary(); library.ok()) {
    everyone.libraries.push_back(*std::move(library));
  }
  everyone.retention = {.max_age = *age, .max_files = flags.max_files, .max_bytes = flags.max_bytes};
  // Who wants every allocation does not want fewer.
  const bool is_exact = policy.lg_sample == uint32_t{0} && !flags.budget_given;
  everyone.budget = is_exact ? 0 : flags.budget / 100;
  recording->everyone = std::move(everyone);
  return DaemonOptions{*std::move(recording), {.socket_path = flags.socket, .listen = flags.listen, .group = *group}};
}

// What the command line and the configuration file say.
absl::Status ReadConfiguration(Command command, DaemonFlags& flags) {
  absl::Status status = ApplyConfigurationFile(flags.configuration, command);
  flags.budget_given = command.IsGiven("--budget");
  if (absl::IsNotFound(status) && !command.IsGiven("--config")) return absl::OkStatus();
  return status;
}

// The same, once more from the beginning.
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
  return absl::FailedPreconditionError(absl::StrCat("cannot make ", path, ": ", strerror(errno)));
}

// What is in it decides what root does: nobody else may put anything there.
absl::Status CheckStateFolder(const std::string& path) {
  struct stat status;
  if (lstat(path.c_str(), &status) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("cannot use ", path, ": ", strerror(errno)));
  }
  if (S_ISDIR(status.st_mode) && status.st_uid == geteuid() && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      path, " must be a folder of root's, and nobody else may write to it; choose another one with --state-dir"));
}

absl::Status MakeFolders(const DaemonFlags& flags) {
  if (absl::Status status = MakeFolder(flags.state_folder, 0700); !status.ok()) return status;
  if (absl::Status status = CheckStateFolder(flags.state_folder); !status.ok()) return status;
  const size_t slash = flags.socket.rfind('/');
  return slash == std::string::npos || slash == 0 ? absl::OkStatus() : MakeFolder(flags.socket.substr(0, slash), 0755);
}

// Has the daemon that records here end with its recording, if there is one.
absl::Status EndDaemon(const std::string& pin_folder) {
  const pid_t pid = bpf::Pins::Holder(pin_folder);
  if (pid <= 0) return absl::OkStatus();
  // The first look is at the name: what runs under the PID now need not be what had the folder.
  const elf::FileDescriptor daemon(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!daemon.valid() || service::ProcessName(pid) != service::kCollectorName) return absl::OkStatus();
  if (syscall(SYS_pidfd_send_signal, daemon.get(), SIGINT, nullptr, 0) != 0 && errno != ESRCH) {
    return absl::PermissionDeniedError(absl::StrCat("cannot end the daemon, process ", pid, ": ", strerror(errno)));
  }
  WaitFor({daemon.get()}, kEndPatience);
  if (IsReadable(daemon.get())) {
    service::Say(absl::StrCat("the daemon, process ", pid, ", has ended"));
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError(absl::StrCat("the daemon, process ", pid, ", does not end within ",
                                                  absl::FormatDuration(kEndPatience), "; kill -KILL ", pid,
                                                  " ends it, then heaptap daemon --end its recording"));
}

int End(const DaemonFlags& flags, DaemonOptions options) {
  if (options.recording.everyone->pin_folder.empty()) return kSuccess;
  if (absl::Status status = EndDaemon(flags.pin_folder); !status.ok()) return Report(status);
  options.recording.everyone->shall_end = true;
  {
    absl::StatusOr<bpf::Pins> pins = bpf::Pins::Open(flags.pin_folder, bpf::Books::Layout());
    if (!pins.ok()) return Report(pins.status());
    if (pins->Names().empty() && pins->OtherLayouts().empty()) {
      pins->RemoveAll();
      service::Say(absl::StrCat("nothing is recorded in ", flags.pin_folder));
      return kSuccess;
    }
  }
  absl::StatusOr<std::unique_ptr<service::Recorder>> recorder = service::Recorder::Start(options.recording);
  if (!recorder.ok()) return Report(recorder.status());
  (*recorder)->End();
  service::Say("the recording has ended");
  return kSuccess;
}

void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void Reload(service::Daemon& daemon, const std::vector<std::string>& arguments) {
  absl::StatusOr<DaemonOptions> options = ReadOptionsAgain(arguments);
  if (!options.ok()) {
    return service::Say(absl::StrCat(options.status().message(), "; the configuration stays as it was"));
  }
  service::Everyone& everyone = *options->recording.everyone;
  daemon.recorder().SetRules(*std::move(everyone.rules), options->recording.policy, everyone.retention,
                             everyone.budget);
  service::Say("read the configuration again: rules, rates, triggers, retention, budget; all else at the next start");
}

int Serve(const DaemonFlags& flags, const DaemonOptions& options, const std::vector<std::string>& arguments) {
  const service::ServiceManager manager;
  // Under nohup too it is asked to read its configuration again by this one.
  signal(SIGHUP, SIG_DFL);
  Signals signals({SIGUSR1, SIGUSR2, SIGINT, SIGTERM, SIGHUP});
  Priority priority;
  RaiseDescriptorLimit();
  absl::StatusOr<std::unique_ptr<service::Daemon>> started = service::Daemon::Start(options.recording, options.http);
  if (!started.ok()) return Report(started.status());
  service::Daemon& daemon = **started;
  // Port 0 is one of the kernel's choice.
  const std::string address = flags.listen.substr(0, flags.listen.rfind(':'));
  service::Say(absl::StrCat("recording; clients at ", flags.socket,
                            daemon.port() == 0 ? "" : absl::StrCat(" and http://", address, ":", daemon.port()),
                            ", dumps in ", flags.state_folder));
  manager.NotifyReady();
  absl::Time alive = absl::Now();
  for (;;) {
    std::vector<int> fds = daemon.fds();
    fds.push_back(signals.fd());
    WaitFor(fds, std::min(service::Daemon::kWorkInterval, manager.watchdog_interval()));
    daemon.Work();
    if (const absl::Time now = absl::Now(); now - alive >= manager.watchdog_interval()) {
      manager.NotifyAlive();
      alive = now;
    }
    for (const signalfd_siginfo& signal : signals.Take()) {
      switch (signal.ssi_signo) {
        case SIGUSR1:
          daemon.DumpAll();
          break;
        case SIGUSR2:
          // sigqueue(3) has a PID with it.
          daemon.DumpOne(signal.ssi_code == SI_QUEUE ? signal.ssi_int : 0);
          break;
        case SIGHUP:
          manager.NotifyReloading();
          Reload(daemon, arguments);
          manager.NotifyReady();
          break;
        case SIGINT:
          manager.NotifyStopping();
          daemon.recorder().End();
          service::Say("the recording has ended");
          return kSuccess;
        default:
          manager.NotifyStopping();
          if (options.recording.everyone->pin_folder.empty()) {
            daemon.recorder().End();
          } else {
            service::Say(absl::StrCat("the recording goes on in the kernel (", flags.pin_folder,
                                      ") until the next start; heaptap daemon --end ends it"));
          }
          return kSuccess;
      }
    }
  }
}

}  // namespace

void AddDaemon(CommandLine& line, const std::vector<std::string>& arguments) {
  Command command = line.AddCommand(
      "daemon", "record every process that has a sampled allocator, from boot on; answer clients; survive everything");
  auto flags = std::make_shared<DaemonFlags>();
  AddOptions(command, *flags);
  command.Footer(
      "SIGUSR1 writes a dump of every process, SIGUSR2 of the largest (or of the PID that sigqueue(3) sends with it);\n"
      "SIGHUP reads the configuration again; SIGTERM ends the collector, SIGINT the recording too.");
  command.Runs([command, flags, arguments] {
    absl::Status read = ReadConfiguration(command, *flags);
    absl::StatusOr<DaemonOptions> options = read.ok() ? MakeOptions(*flags) : read;
    if (const std::string missing = bpf::MissingCapabilities(); options.ok() && !missing.empty()) {
      options = absl::PermissionDeniedError(absl::StrCat("run heaptap daemon as root, or give it ", missing));
    }
    if (options.ok()) {
      if (absl::Status made = MakeFolders(*flags); !made.ok()) options = made;
    }
    if (!options.ok()) return Report(options.status());
    return flags->end ? End(*flags, *options) : Serve(*flags, *options, arguments);
  });
}

}  // namespace heaptap::cli
