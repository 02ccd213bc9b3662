// SPDX-License-Identifier: Apache-2.0
//
// A command's options from a file.
//
//   # comment
//   NAME=VALUE      as --NAME=VALUE
//   NAME            a flag, as --NAME
//
// All of the line after the first '=' is the value, without the blanks around it and one pair of double quotes; so a
// value may have blanks, quotes, '=' and '#' in it. An option that may be given several times has a line for each.
// NAME=false is as if a flag were not there.
//
// CLI11's own reader is for another purpose: it splits values at blanks and commas, ends them at a '#' in quotes, and
// leaves out what it does not know and what is not beside its like.
#ifndef HEAPTAP_USERSPACE_CLI_CONFIGURATION_FILE_H_
#define HEAPTAP_USERSPACE_CLI_CONFIGURATION_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "userspace/cli/command_line.h"

namespace heaptap::cli {

// Gives a command the options that a file sets, after its command line has been parsed (so, in its action). An option
// that was given on the command line, or one that excludes it, wins. NotFound: no such file. InvalidArgument: names
// file, line and what is wrong; the options before it are set then.
absl::Status ApplyConfigurationFile(const std::string& path, Command command);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_CONFIGURATION_FILE_H_
