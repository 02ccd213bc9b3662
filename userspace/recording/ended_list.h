// SPDX-License-Identifier: Apache-2.0
//
// The processes that have ended, with their last figures, and a file that keeps them for the next recorder. Each line
// of the file is a JSON object (json/figures_json.h); the process that ended last is in the last line.
//
// Not thread-safe.
#ifndef HEAPTAP_USERSPACE_RECORDING_ENDED_LIST_H_
#define HEAPTAP_USERSPACE_RECORDING_ENDED_LIST_H_

#include <cstddef>
#include <deque>
#include <string>

#include "absl/status/status.h"
#include "userspace/base/background.h"
#include "userspace/profile/figures.h"

namespace heaptap::recording {

class EndedList {
 public:
  // Processes that are remembered.
  static constexpr size_t kMost = 1000;

  // Takes over the processes in the file, and adds to the file from now on. `files` writes the additions, because they
  // may wait for the disk. Lines that cannot be read are skipped: a recorder may have been killed while it wrote one.
  // Unavailable: the file cannot be written.
  absl::Status KeepIn(const std::string& path, base::Background& files);

  void Add(profile::EndedProcess process);
  // Most recent first. Processes of earlier recorders have the process id 0, because the books of their old id may be
  // gone.
  const std::deque<profile::EndedProcess>& all() const { return all_; }

 private:
  void Read();
  void Remember(profile::EndedProcess process);
  std::string AllText() const;
  void Write();

  std::deque<profile::EndedProcess> all_;
  std::deque<std::string> texts_;  // the same as lines of the file, in its order
  std::string path_ = {};          // "": none
  base::Background* files_ = nullptr;
  std::string unwritten_ = {};  // lines
  bool is_writing_ = false;
  size_t lines_ = 0;  // in the file
  bool has_failed_ = false;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_RECORDING_ENDED_LIST_H_
