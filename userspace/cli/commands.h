// SPDX-License-Identifier: Apache-2.0
//
// The commands of heaptap, one file each. A command adds itself to the command line; if it is chosen, `status` becomes
// the exit status of the whole.
#ifndef HEAPTAP_USERSPACE_CLI_COMMANDS_H_
#define HEAPTAP_USERSPACE_CLI_COMMANDS_H_

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace heaptap::cli {

// `program`: what stands behind "--" on the command line.
void AddRun(CLI::App& app, const std::vector<std::string>& program, int& status);
void AddAttach(CLI::App& app, int& status);
void AddDoctor(CLI::App& app, int& status);
// `arguments`: of the whole command line, to be read again when the configuration is.
void AddDaemon(CLI::App& app, const std::vector<std::string>& arguments, int& status);
void AddList(CLI::App& app, int& status);
void AddDump(CLI::App& app, int& status);
void AddActive(CLI::App& app, int& status);
void AddRate(CLI::App& app, int& status);
void AddStats(CLI::App& app, int& status);
void AddDiff(CLI::App& app, int& status);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_COMMANDS_H_
