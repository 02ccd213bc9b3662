// SPDX-License-Identifier: Apache-2.0
//
// Which service a process belongs to. The processes of a service follow one another in one timeline of the history, and
// people look for them by the service's name.
//
// Thread-safe. `control_groups` are those of Facts: they may hold any byte, and so may the results.
#ifndef HEAPTAP_USERSPACE_PROCESS_SERVICE_NAME_H_
#define HEAPTAP_USERSPACE_PROCESS_SERVICE_NAME_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace heaptap::process {

// The name of the systemd unit "NAME.service" in the paths of its control groups (systemd.unit(5)), but not of a user's
// service manager; "": there is none. At most 247 bytes, because it is the name of a folder without ".service".
std::string UnitName(absl::Span<const std::string> control_groups);

// The name of the unit if there is one, else the script that the command runs (process/script_name.h), else the
// command.
std::string ServiceName(absl::Span<const std::string> control_groups, absl::string_view script,
                        absl::string_view command);

// The longest of the paths, which says most about the process. A path of more than 512 bytes is cut to "..." and its
// end. "": there is none.
std::string LongestControlGroup(absl::Span<const std::string> control_groups);

}  // namespace heaptap::process

#endif  // HEAPTAP_USERSPACE_PROCESS_SERVICE_NAME_H_
