// SPDX-License-Identifier: Apache-2.0
//
// Profiles of moments of the past, from the history that the daemon keeps. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_CLI_SUBJECTS_HISTORY_PROFILE_H_
#define HEAPTAP_USERSPACE_CLI_SUBJECTS_HISTORY_PROFILE_H_

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/cli/ask/client.h"
#include "userspace/cli/subjects/profile_source.h"
#include "userspace/cli/words/moment.h"
#include "userspace/history/moment_profile.h"
#include "userspace/history/timeline_data.h"

namespace heaptap::cli {

// Path and query of a question about a service, a command or a process (a PID); parameters can follow.
std::string HistoryTarget(const std::string& name);

// What a document of /history.json says about live memory: points without their times, rows, paths. Throws
// std::exception if a field is missing, has another type or another value than a daemon sends.
history::Timeline ReadTimelineJson(const nlohmann::json& document);

// Profiles that can be compared with each other, and with no others (history/moment_profile.h).
class HistoryProfiles {
 public:
  explicit HistoryProfiles(const Client& client) : client_(client) {}

  // NotFound: nothing is known of the name, or nothing of that name ran then. Also the other errors of Client.
  // NAME@last fetches the last point in the history.
  absl::StatusOr<Dump> Fetch(const NamedMoment& moment);
  const std::string& socket() const { return client_.socket(); }

 private:
  absl::StatusOr<absl::Time> LastPoint(const std::string& name) const;

  const Client& client_;
  history::MomentProfiles profiles_;
};

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_SUBJECTS_HISTORY_PROFILE_H_
