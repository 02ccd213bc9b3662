// SPDX-License-Identifier: Apache-2.0
//
// The processes that have ended, with their last figures, and a file that keeps them for the next recorder: a JSON
// object (export/figures_json.h) in each line, the process that ended last in the last one.
//
// Not thread-safe.
#ifndef HEAPTAP_USERSPACE_RECORDING_ENDED_LIST_H_
#define HEAPTAP_USERSPACE_RECORDING_ENDED_LIST_H_

#include <cstddef>
#include <deque>
#include <string>

#include "absl/status/status.h"
#include "userspace/profile/figures.h"

namespace heaptap::recording {

class EndedList {
 public:
  // Processes that are remembered.
  static constexpr size_t kMost = 1000;

  // Takes over what the file has, and adds to the file from now on. Lines that cannot be read are passed over: a
  // recorder may have been killed in the middle of one. Unavailable: the file cannot be written.
  absl::Status KeepIn(const std::string& path);

  void Add(profile::EndedProcess process);
  // Most recent first. Those of earlier recorders have the process id 0: the books that it named may be gone.
  const std::deque<profile::EndedProcess>& all() const { return all_; }

 private:
  void Read();
  // Writes the file anew, without what is no longer remembered.
  absl::Status Write();
  absl::Status Append(const profile::EndedProcess& process);

  std::deque<profile::EndedProcess> all_;
  std::string path_ = {};  // "": none
  size_t lines_ = 0;       // in the file
  bool has_failed_ = false;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_RECORDING_ENDED_LIST_H_
