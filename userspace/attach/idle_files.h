// SPDX-License-Identifier: Apache-2.0
//
// How long the probes of a file stay after the last process that mapped it: a program that is started again then has
// them from its first allocation on, but they keep the file's mount busy. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_ATTACH_IDLE_FILES_H_
#define HEAPTAP_USERSPACE_ATTACH_IDLE_FILES_H_

#include <cstddef>
#include <map>
#include <set>

#include "absl/time/time.h"
#include "userspace/attach/probe_files.h"
#include "userspace/base/clock.h"

namespace heaptap::recording {

class IdleFiles {
 public:
  using File = ProbeFiles::File;

  // How long a file on the root file system, which stays mounted, keeps its probes.
  static constexpr absl::Duration kLasting = absl::Minutes(15);
  // The most such files at once: any user can start any number of programs. The files that have been idle longest go
  // first.
  static constexpr size_t kMostLasting = 64;

  // `is_lasting`: the file is on the root file system. Other files are due at once, so that their file systems can be
  // unmounted.
  void NoteAttached(File file, bool is_lasting);
  // A process maps the file, or did since the last call of Due.
  void NoteUsed(File file) { since_.erase(file); }

  // The files of `unused` whose probes should be removed. `unused`: all attached files that no process maps. A file
  // stays due until it is used or is no longer among `unused`.
  std::set<File> Due(const std::set<File>& unused, base::Instant now);

 private:
  std::set<File> lasting_;
  std::map<File, base::Instant> since_;  // of idle lasting files
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_ATTACH_IDLE_FILES_H_
