// SPDX-License-Identifier: Apache-2.0
#include "userspace/daemon/library_watch.h"

#include <limits.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/messages.h"

namespace heaptap::daemon {
namespace {

// After these events the file is whole: it was renamed, as package managers do, or written and closed. The mode may be
// set later, which makes the file another version for whoever reads it just then.
constexpr uint32_t kEvents = IN_MOVED_TO | IN_CLOSE_WRITE | IN_ATTRIB | IN_ONLYDIR;

// Whether only root can put files there.
bool IsOfRoot(const std::string& folder) {
  struct stat status;
  return stat(folder.c_str(), &status) == 0 && status.st_uid == 0 && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace

void LibraryWatch::Use(const recording::SystemWide& system_wide) {
  folders_.clear();
  paths_.clear();
  paths_.insert(system_wide.libraries.begin(), system_wide.libraries.end());
  paths_.insert(system_wide.preloaded.begin(), system_wide.preloaded.end());
  inotify_ = base::FileDescriptor(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  for (const std::string& path : paths_) {
    if (path.empty() || path[0] != '/') continue;
    const std::string folder = path.substr(0, path.rfind('/') + 1);
    if (!IsOfRoot(folder)) continue;
    if (const int watch = inotify_add_watch(inotify_.get(), folder.c_str(), kEvents); watch >= 0)
      folders_[watch] = folder;
  }
}

void LibraryWatch::Work() {
  std::set<std::string> replaced;
  alignas(inotify_event) char buffer[64 * (sizeof(inotify_event) + NAME_MAX + 1)];
  for (ssize_t bytes; (bytes = read(inotify_.get(), buffer, sizeof(buffer))) > 0;) {
    for (const char* at = buffer; at < buffer + bytes;) {
      inotify_event event;
      memcpy(&event, at, sizeof(event));
      const auto folder = folders_.find(event.wd);
      const bool has_name = event.len > 0 && folder != folders_.end();
      if (has_name) replaced.insert(absl::StrCat(folder->second, at + sizeof(event)));
      at += sizeof(event) + event.len;
    }
  }
  for (const std::string& path : replaced) {
    if (!paths_.contains(path)) continue;
    const absl::StatusOr<bool> attached = recorder_.AttachFile(path);
    if (attached.ok() || absl::IsNotFound(attached.status())) continue;
    base::Say(absl::StrCat(attached.status().message(), "; the daemon attaches to it when a process maps it"));
  }
}

}  // namespace heaptap::daemon
