// SPDX-License-Identifier: Apache-2.0
#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "userspace/cli/commands.h"
#include "userspace/cli/exit_status.h"
#include "userspace/service/control_block.h"
#include "userspace/service/messages.h"

int main(int argc, char** argv) {
  prctl(PR_SET_NAME, heaptap::service::kCollectorName);
  CLI::App app("Who holds the heap of a running program, and through which call path.", "heaptap");
  app.require_subcommand(1);
  app.set_version_flag("-V,--version", "heaptap " HEAPTAP_VERSION);
  app.footer(
      "Exit status: 0 success, 1 failure, 2 wrong usage, 3 no such target, 4 missing permission;\n"
      "`heaptap run` passes on that of the program (128 + signal if a signal ended it).");
  // What follows "--" is a program's own command line; it is nothing for a parser.
  char** const end = argv + argc;
  char** const dashes = std::find_if(argv, end, [](const char* word) { return std::string_view(word) == "--"; });
  const std::vector<std::string> program(dashes == end ? end : dashes + 1, end);
  int status = heaptap::cli::kSuccess;
  heaptap::cli::AddRun(app, program, status);
  heaptap::cli::AddAttach(app, status);
  heaptap::cli::AddDoctor(app, status);
  heaptap::cli::AddDaemon(app, std::vector<std::string>(argv + 1, dashes), status);
  heaptap::cli::AddList(app, status);
  heaptap::cli::AddDump(app, status);
  heaptap::cli::AddActive(app, status);
  heaptap::cli::AddRate(app, status);
  heaptap::cli::AddStats(app, status);
  heaptap::cli::AddDiff(app, status);
  if (const std::string word = argc > 1 ? argv[1] : ""; !word.empty() && word[0] != '-') {
    const std::vector<CLI::App*> commands =
        app.get_subcommands([&](CLI::App* command) { return command->check_name(word); });
    if (commands.empty()) {
      heaptap::service::Say("unknown command " + heaptap::service::Printable(word) + "; see heaptap --help");
      return heaptap::cli::kUsage;
    }
  }
  try {
    app.parse(static_cast<int>(dashes - argv), argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    heaptap::service::Say(std::string(error.what()) + "; see heaptap --help");
    return heaptap::cli::kUsage;
  }
  return status;
}
