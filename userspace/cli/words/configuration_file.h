// SPDX-License-Identifier: Apache-2.0
//
// Reads a command's options from a file.
//
//   # comment
//   NAME=VALUE      same as --NAME=VALUE
//   NAME            a flag, same as --NAME
//
// The value is the rest of the line after the first '=', without surrounding spaces and one pair of double quotes, so
// it may contain spaces, quotes, '=' and '#'. A repeatable option has a line for each value. NAME=false leaves a flag
// unset.
//
// CLI11's own reader (2.1) does not fit. It splits unquoted values at spaces and commas, cuts values at a '#' even in
// quotes, takes a value that begins with '[' (an IPv6 address) for a list that may end lines later, skips lines of
// fewer than three characters, and names no line in its errors.
#ifndef HEAPTAP_USERSPACE_CLI_WORDS_CONFIGURATION_FILE_H_
#define HEAPTAP_USERSPACE_CLI_WORDS_CONFIGURATION_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "userspace/cli/words/command_line.h"

namespace heaptap::cli {

// Sets a command's options from a file. Call it after the command line has been parsed, in the command's action: an
// option on the command line, or one that excludes it, takes precedence. NotFound: no such file. InvalidArgument: names
// file, line and error; the options before that line are set.
absl::Status ApplyConfigurationFile(const std::string& path, Command command);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_WORDS_CONFIGURATION_FILE_H_
