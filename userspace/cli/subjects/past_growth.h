// SPDX-License-Identifier: Apache-2.0
//
// What grew in a running process lately, from the history that the daemon keeps. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_CLI_SUBJECTS_PAST_GROWTH_H_
#define HEAPTAP_USERSPACE_CLI_SUBJECTS_PAST_GROWTH_H_

#include <sys/types.h>

#include <optional>

#include "absl/time/time.h"
#include "userspace/cli/ask/client.h"
#include "userspace/cli/subjects/growth.h"
#include "userspace/formats/jeprof_symbols_reader.h"

namespace heaptap::cli {

struct PastGrowth {
  Growth growth;
  formats::Symbols symbols = {};
  absl::Duration time = {};  // between the two moments
};

// From the first moment in the last hour to the latest one. None: the daemon has no history of the process, or one
// moment only, or does not answer. An error is not worth a message: this is an addition to a report.
std::optional<PastGrowth> FindPastGrowth(const Client& client, pid_t pid);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_SUBJECTS_PAST_GROWTH_H_
