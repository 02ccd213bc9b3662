// SPDX-License-Identifier: Apache-2.0
//
// Profiles of moments of the past, from the history that the daemon keeps. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_CLI_HISTORY_PROFILE_H_
#define HEAPTAP_USERSPACE_CLI_HISTORY_PROFILE_H_

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "userspace/cli/client.h"
#include "userspace/cli/moment.h"
#include "userspace/cli/profile_source.h"

namespace heaptap::cli {

// Path and query of a question about a service, a command or a process (a PID); parameters can follow.
std::string HistoryTarget(const std::string& name);

// Makes profiles whose addresses can be compared: the same frame has the same address in all of them, whichever process
// and whichever build of the program had it. The addresses mean nothing else, and names come with the profiles.
class HistoryProfiles {
 public:
  explicit HistoryProfiles(const Client& client) : client_(client) {}

  // NotFound: nothing is known of it, or nothing of it ran then. Other errors of Client.
  absl::StatusOr<Dump> Fetch(const NamedMoment& moment);

 private:
  absl::StatusOr<Dump> Make(const nlohmann::json& document);
  uint64_t AddressOf(const std::string& library, const std::vector<exporter::SourceFrame>& frames, uint64_t offset);

  const Client& client_;
  std::map<std::string, uint64_t> addresses_;  // of frames, by their names
  std::map<std::string, uint64_t> libraries_;  // their number
};

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_HISTORY_PROFILE_H_
