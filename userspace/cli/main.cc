// SPDX-License-Identifier: Apache-2.0
#include <sys/prctl.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "userspace/cli/command_line.h"
#include "userspace/cli/commands.h"
#include "userspace/service/control_block.h"

int main(int argc, char** argv) {
  prctl(PR_SET_NAME, heaptap::service::kCollectorName);
  // What follows "--" is a program's own command line; it is nothing for a parser.
  char** const end = argv + argc;
  char** const dashes = std::find_if(argv, end, [](const char* word) { return std::string_view(word) == "--"; });
  const std::vector<std::string> program(dashes == end ? end : dashes + 1, end);
  const std::vector<std::string> words(argv + 1, dashes);
  heaptap::cli::CommandLine line;
  heaptap::cli::AddRun(line, program);
  heaptap::cli::AddAttach(line);
  heaptap::cli::AddDoctor(line);
  heaptap::cli::AddDaemon(line, words);
  heaptap::cli::AddList(line);
  heaptap::cli::AddDump(line);
  heaptap::cli::AddActive(line);
  heaptap::cli::AddRate(line);
  heaptap::cli::AddStats(line);
  heaptap::cli::AddDiff(line);
  return line.Run(words);
}
