// SPDX-License-Identifier: Apache-2.0
//
// What `heaptap report`, `run` and `attach` tell about a dump besides its call paths. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_CLI_SHOW_SHORT_REPORT_H_
#define HEAPTAP_USERSPACE_CLI_SHOW_SHORT_REPORT_H_

#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "userspace/cli/words/command_line.h"
#include "userspace/profile/profile.h"
#include "userspace/report/summary_text.h"

namespace heaptap::cli {

// The subject of a report on the dump at `path`.
report::Subject DumpSubject(const profile::Profile& profile, const std::string& path);

// The bytes that the process has in memory; none if that cannot be read.
std::optional<double> ResidentBytes(pid_t pid);

// Adds --report: whether a recording shows the short form at its end.
void AddShortReportOption(Command command, std::string& when);
// Whether a recording shows the short form. `when`: the word as typed.
bool WantsShortReport(const std::string& when);

// What is known of a process besides its dump.
struct RecordedProcess {
  pid_t pid = 0;  // 0: it has ended
  std::optional<absl::Duration> recorded_for = {};
};

// Writes the short form of `heaptap report` for this dump to stderr. A dump that cannot be read gets one line.
void SayShortReport(const std::string& path, const RecordedProcess& process);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_SHOW_SHORT_REPORT_H_
