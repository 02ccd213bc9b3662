// SPDX-License-Identifier: Apache-2.0
//
// How --help looks. Only command_line.cc includes this: no other file knows of CLI11.
#ifndef HEAPTAP_USERSPACE_CLI_WORDS_HELP_TEXT_H_
#define HEAPTAP_USERSPACE_CLI_WORDS_HELP_TEXT_H_

#include <CLI/CLI.hpp>
#include <string>

namespace heaptap::cli {

// Lines of at most 80 letters, and the values of options as people write them. Which options exclude each other is left
// out: each of the many views of a report would name all others. A user who combines two of them gets a message.
class HelpText : public CLI::Formatter {
 public:
  std::string make_description(const CLI::App* app) const override;
  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_footer(const CLI::App* app) const override;
  std::string make_subcommand(const CLI::App* app) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
};

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_WORDS_HELP_TEXT_H_
