// SPDX-License-Identifier: Apache-2.0
//
// Which process a user means by a PID or by a command, as ps -o comm shows it.
#ifndef HEAPTAP_USERSPACE_CLI_ASK_FIND_PROCESS_H_
#define HEAPTAP_USERSPACE_CLI_ASK_FIND_PROCESS_H_

#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/cli/ask/client.h"
#include "userspace/cli/ask/documents.h"
#include "userspace/cli/words/command_line.h"

namespace heaptap::cli {

// What the message says if there is no such process: "there is no ...".
inline constexpr char kRecordedProcess[] = "recorded process";
inline constexpr char kFileOrRecordedProcess[] = "file and no recorded process";

// The PID that a word stands for; none: the word is not a PID.
std::optional<pid_t> ToPid(const std::string& word);

// "", or the reason to refuse the word, for Option::Check: a number that is not a PID is a mistake, not a command.
std::string CheckProcessWord(const std::string& word);

// The word PROCESS of a command, whose help says what the command does with it: "record this process".
Option AddProcessWord(Command command, std::string& process, const std::string& help);

// Finds a process that the daemon records. NotFound: there is none; if one has ended lately, the message says when, and
// how to see what it held. InvalidArgument: several have this command. Also the errors of Client.
absl::StatusOr<ProcessDocument> FindProcess(const Client& client, const std::string& word,
                                            absl::string_view what = kRecordedProcess);

// Like FindProcess, for a request that needs only the PID: a word that is a PID is not looked up.
absl::StatusOr<pid_t> FindPid(const Client& client, const std::string& word);

// Finds a process that has a sampled allocator, without a daemon. A word that is a PID is not looked up. NotFound: none
// has this command. InvalidArgument: several have it.
absl::StatusOr<pid_t> FindPreloaded(const std::string& word);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_ASK_FIND_PROCESS_H_
