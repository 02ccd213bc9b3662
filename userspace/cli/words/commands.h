// SPDX-License-Identifier: Apache-2.0
//
// The commands of heaptap, one file each. A command adds itself to the command line.
#ifndef HEAPTAP_USERSPACE_CLI_WORDS_COMMANDS_H_
#define HEAPTAP_USERSPACE_CLI_WORDS_COMMANDS_H_

#include <string>
#include <vector>

#include "userspace/cli/words/command_line.h"

namespace heaptap::cli {

// `program`: the words of the command line from "--" on.
void AddRun(CommandLine& line, const std::vector<std::string>& program);
void AddAttach(CommandLine& line);
void AddDoctor(CommandLine& line);
// `arguments`: the whole command line, which is parsed again when the configuration is reloaded.
void AddDaemon(CommandLine& line, const std::vector<std::string>& arguments);
void AddList(CommandLine& line);
void AddDump(CommandLine& line);
void AddActive(CommandLine& line);
void AddRate(CommandLine& line);
void AddStats(CommandLine& line);
void AddDiff(CommandLine& line);
void AddReport(CommandLine& line);
void AddView(CommandLine& line);
void AddTop(CommandLine& line);
void AddHistory(CommandLine& line);
void AddMark(CommandLine& line);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_WORDS_COMMANDS_H_
