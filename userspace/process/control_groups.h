// SPDX-License-Identifier: Apache-2.0
//
// The control groups that a recording is restricted to (cgroups(7), version 2).
//
// A service manager removes the group of a service that ends, and makes another one of the same name when the service
// starts again. So a group is known by the path of its folder, and the folder may be missing. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_PROCESS_CONTROL_GROUPS_H_
#define HEAPTAP_USERSPACE_PROCESS_CONTROL_GROUPS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "userspace/base/file_descriptor.h"

namespace heaptap::process {

class ControlGroups {
 public:
  // No groups: there is no restriction.
  ControlGroups() = default;

  // The groups with these folders, except groups that lie below another one of them. InvalidArgument: a path leads to
  // something other than a control group of version 2, or there are more than `most` groups.
  static absl::StatusOr<ControlGroups> Open(absl::Span<const std::string> paths, size_t most);

  bool empty() const { return groups_.empty(); }
  // Descriptors of the folders, in a constant order; -1: the folder is missing.
  std::vector<int> fds() const;
  // The paths whose folders are missing.
  std::vector<std::string> Missing() const;
  // Whether a process with this path (Facts::unified_group) is in one of the groups, or below one.
  bool Contain(absl::string_view path) const;

  // The descriptors of a group before and after a change.
  struct Change {
    int before;  // -1: the folder was missing
    int now;
  };
  // Looks at all folders again. Returns the groups that were made since the last look. Their old descriptors stay open
  // until the next call.
  std::vector<Change> Refresh();

 private:
  struct Group {
    std::string folder;            // canonical
    base::FileDescriptor fd = {};  // none: the folder is missing
    ino_t inode = 0;
    std::string path = {};  // as in /proc/PID/cgroup
  };
  static absl::StatusOr<Group> OpenOne(const std::string& folder);

  std::vector<Group> groups_;
  std::vector<base::FileDescriptor> replaced_;
};

// The path of a control group as /proc/PID/cgroup shows it. `folder`: canonical; `mounts`: the text of
// /proc/self/mountinfo. None: no file system of control groups (version 2) is mounted there.
std::optional<std::string> GroupPathOf(absl::string_view folder, absl::string_view mounts);

}  // namespace heaptap::process

#endif  // HEAPTAP_USERSPACE_PROCESS_CONTROL_GROUPS_H_
