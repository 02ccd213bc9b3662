// SPDX-License-Identifier: Apache-2.0
//
// heaptap mark: notes a text at this moment in the history.
#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "userspace/cli/client.h"
#include "userspace/cli/command_line.h"
#include "userspace/cli/commands.h"
#include "userspace/cli/exit_status.h"
#include "userspace/cli/url_text.h"

namespace heaptap::cli {
namespace {

struct MarkFlags {
  std::string socket = kDefaultSocket;
  std::string text;
  pid_t pid = 0;  // 0: all
};

int Mark(const MarkFlags& flags) {
  std::string target = absl::StrCat("/mark?text=", UrlText(flags.text));
  if (flags.pid != 0) absl::StrAppend(&target, "&pid=", flags.pid);
  return Report(Client(flags.socket).Order(target));
}

}  // namespace

void AddMark(CommandLine& line) {
  Command command = line.AddCommand("mark", "note a text at this moment in the history that the daemon keeps");
  auto flags = std::make_shared<MarkFlags>();
  command.Add("TEXT", flags->text, "the text, such as the name of a release").Required().Type("");
  command.Add("PID", flags->pid, "mark this process only (default: all, for root)").Type("").AboveZero();
  AddSocketOption(command, flags->socket);
  command.Runs([flags] { return Mark(*flags); });
}

}  // namespace heaptap::cli
