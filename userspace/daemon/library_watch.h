// SPDX-License-Identifier: Apache-2.0
//
// Notices when another file gets the path of one of the daemon's libraries, as in an upgrade, and attaches to it before
// a process maps it (inotify(7)). Only root's folders are watched: another user could make the daemon attach all the
// time, or make it wait for that user's file system. Files in other folders are attached to when a process maps them.
//
// Not thread-safe. The recorder must outlive this object.
#ifndef HEAPTAP_USERSPACE_DAEMON_LIBRARY_WATCH_H_
#define HEAPTAP_USERSPACE_DAEMON_LIBRARY_WATCH_H_

#include <map>
#include <set>
#include <string>

#include "userspace/base/file_descriptor.h"
#include "userspace/dumps/recorder_options.h"
#include "userspace/recording/recorder.h"

namespace heaptap::daemon {

class LibraryWatch {
 public:
  explicit LibraryWatch(recording::Recorder& recorder) : recorder_(recorder) {}

  // Watches the libraries of `system_wide`, instead of the previous ones.
  void Use(const recording::SystemWide& system_wide);

  // Becomes readable when Work is to be called; negative: never.
  int fd() const { return inotify_.get(); }
  void Work();

 private:
  recording::Recorder& recorder_;
  base::FileDescriptor inotify_ = {};
  std::map<int, std::string> folders_ = {};  // by watch, with a slash at the end
  std::set<std::string> paths_ = {};
};

}  // namespace heaptap::daemon

#endif  // HEAPTAP_USERSPACE_DAEMON_LIBRARY_WATCH_H_
