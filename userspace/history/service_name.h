// SPDX-License-Identifier: Apache-2.0
//
// Which service a process belongs to: its processes follow one another in one timeline.
#ifndef HEAPTAP_USERSPACE_HISTORY_SERVICE_NAME_H_
#define HEAPTAP_USERSPACE_HISTORY_SERVICE_NAME_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace heaptap::history {

// The name of the systemd unit "NAME.service" in the paths of its control groups (systemd.unit(5)), but not of a user's
// service manager; without one, the command. Thread-safe.
std::string ServiceName(absl::Span<const std::string> control_groups, absl::string_view command);

}  // namespace heaptap::history

#endif  // HEAPTAP_USERSPACE_HISTORY_SERVICE_NAME_H_
