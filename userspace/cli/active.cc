// SPDX-License-Identifier: Apache-2.0
//
// heaptap active: switches the sampling of one process on and off (prof.active).
#include <stdio.h>
#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "userspace/base/messages.h"
#include "userspace/cli/ask/client.h"
#include "userspace/cli/ask/control.h"
#include "userspace/cli/ask/find_process.h"
#include "userspace/cli/recording.h"
#include "userspace/cli/words/command_line.h"
#include "userspace/cli/words/commands.h"
#include "userspace/cli/words/exit_status.h"
#include "userspace/process/control_block.h"

namespace heaptap::cli {
namespace {

struct ActiveFlags {
  std::string socket = DefaultSocket();
  std::string process;
  std::string value;
};

absl::Status WithoutDaemon(pid_t pid, bool active) {
  absl::StatusOr<process::Preloaded> found = FindControllable(pid);
  if (!found.ok()) return found.status();
  return process::WriteActive(found->process, found->control_address, active);
}

int Active(const ActiveFlags& flags) {
  const Client client(flags.socket);
  absl::StatusOr<pid_t> pid = FindPid(client, flags.process);
  absl::Status done =
      pid.ok() ? client.Order(absl::StrCat("/pid/", *pid, "/active?value=", flags.value)) : pid.status();
  const bool has_daemon = !IsNoDaemon(done);
  if (!has_daemon) {
    pid = FindPreloaded(flags.process);
    done = pid.ok() ? WithoutDaemon(*pid, flags.value == "on") : pid.status();
  }
  if (done.ok() && flags.value == "off") {
    printf("New allocations of process %d are not recorded until heaptap active %d on%s; frees still are.\n", *pid,
           *pid, has_daemon ? SocketWords(flags.socket).c_str() : "");
  }
  return Report(done);
}

}  // namespace

void AddActive(CommandLine& line) {
  Command command = line.AddCommand(
      "active", "switch the sampling of a process on or off; without a daemon, directly in the process");
  auto flags = std::make_shared<ActiveFlags>();
  AddProcessWord(command, flags->process, "switch this process").Required();
  const auto check = [](const std::string& text) {
    return text == "on" || text == "off" ? "" : absl::StrCat("'", base::AsciiOnly(text), "' is neither on nor off");
  };
  command.Add("on|off", flags->value, "switch sampling on or off").Required().Type("").Check(check);
  AddSocketOption(command, flags->socket);
  command.Runs([flags] { return Active(*flags); });
}

}  // namespace heaptap::cli
