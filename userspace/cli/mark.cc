// SPDX-License-Identifier: Apache-2.0
//
// heaptap mark: notes a text at this moment in the history.
#include <sys/types.h>

#include <memory>
#include <string>

#include "userspace/cli/ask/client.h"
#include "userspace/cli/ask/documents.h"
#include "userspace/cli/words/command_line.h"
#include "userspace/cli/words/commands.h"
#include "userspace/cli/words/exit_status.h"

namespace heaptap::cli {
namespace {

struct MarkFlags {
  std::string socket = DefaultSocket();
  std::string text;
  pid_t pid = 0;  // 0: all
};

int Mark(const MarkFlags& flags) { return Report(PostMark(Client(flags.socket), flags.text, flags.pid)); }

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
