// SPDX-License-Identifier: Apache-2.0
//
// Reads and checks the daemon's JSON documents; their objects have the fields of profile/figure_tables.h.
//
// Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_CLI_ASK_DOCUMENTS_H_
#define HEAPTAP_USERSPACE_CLI_ASK_DOCUMENTS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "userspace/api/collector.h"
#include "userspace/cli/ask/client.h"
#include "userspace/json/json.h"
#include "userspace/profile/coverage.h"
#include "userspace/profile/figures.h"

namespace heaptap::cli {

// All functions have the errors of Client.

// A parsed value, and the JSON that the daemon sent for it.
template <typename T>
struct Document {
  T value;
  json::Json json;
};
using ProcessDocument = Document<profile::ProcessSummary>;
using EndedDocument = Document<profile::EndedProcess>;

// What the daemon says about itself.
struct DaemonState {
  bool is_restricted = false;  // whether it may record only some processes, by their control group or files
  std::map<std::string, absl::Time> failing = {};  // as in CollectorFigures::failing
};
absl::StatusOr<std::vector<ProcessDocument>> GetProcesses(const Client& client, DaemonState* state = nullptr);
// NotFound: the process is not recorded.
absl::StatusOr<ProcessDocument> GetProcess(const Client& client, pid_t pid);

absl::StatusOr<std::vector<EndedDocument>> GetEnded(const Client& client);

absl::StatusOr<profile::AllocatorFigures> GetAllocator(const Client& client, pid_t pid);

// The memory of the process, heap or not.
absl::StatusOr<profile::ResidentBytes> GetResident(const Client& client, pid_t pid);

// Writes a dump into the daemon's folder. Returns its path.
absl::StatusOr<std::string> PostDump(const Client& client, pid_t pid);
struct Dumped {
  pid_t pid = 0;
  absl::StatusOr<std::string> path;
};
absl::StatusOr<std::vector<Dumped>> PostDumps(const Client& client);
// Adds a mark to the history of a process; 0: of all processes.
absl::Status PostMark(const Client& client, absl::string_view text, pid_t pid);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_ASK_DOCUMENTS_H_
