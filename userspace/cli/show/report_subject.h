// SPDX-License-Identifier: Apache-2.0
//
// What `heaptap report` and `heaptap view` look at: a dump, a process of the daemon, or the difference to an earlier
// dump. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_CLI_SHOW_REPORT_SUBJECT_H_
#define HEAPTAP_USERSPACE_CLI_SHOW_REPORT_SUBJECT_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/cli/subjects/local_names.h"
#include "userspace/cli/words/command_line.h"
#include "userspace/formats/jeprof_symbols_reader.h"
#include "userspace/profile/difference.h"
#include "userspace/profile/profile.h"
#include "userspace/report/measure.h"
#include "userspace/report/summary_text.h"

namespace heaptap::cli {

struct Seen {
  profile::Profile profile;
  std::vector<report::Measures> measures = {};  // of each context of a difference; else none
  report::Subject subject;
  std::optional<pid_t> pid = {};  // of a running process
  formats::Symbols symbols = {};  // of the dumps
};

// `word`: the path of a dump, a PID, the command of a process that the daemon at `socket` records, or NAME@MOMENT (a
// moment of its history). `base`: the path of an earlier dump, or an earlier moment; "": none; `unchanged`: whether the
// difference has call paths that did not change; `places`: where to find the names by which different processes are
// compared. NotFound: no such dump and no such process; InvalidArgument: several processes have this command;
// FailedPrecondition: a dump cannot be read, or there is neither such a dump nor a daemon.
absl::StatusOr<Seen> LookAt(const std::string& socket, const std::string& word, const std::string& base,
                            const NamePlaces& places = {},
                            profile::Unchanged unchanged = profile::Unchanged::kLeaveOut);

// Like LookAt, with the shares of threads, and for a process with the shares of sizes and ages, as far as these are
// known.
absl::StatusOr<Seen> LookAtShares(const std::string& socket, const std::string& word, const std::string& base,
                                  const NamePlaces& places, profile::Unchanged unchanged);

// A dump or a process, with what `roots` needs. `option`: for messages. Errors as above; FailedPrecondition also if the
// dump or process does not tell threads, sizes or ages apart.
absl::StatusOr<Seen> LookAtRoots(const std::string& socket, const std::string& word, report::Roots roots,
                                 absl::string_view option);

// The argument and the option for `word` and `base`.
void AddSubjectOptions(Command command, std::string& word, std::string& base);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_SHOW_REPORT_SUBJECT_H_
