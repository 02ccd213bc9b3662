// SPDX-License-Identifier: Apache-2.0
//
// Processes that map files whose reading failed, so that they are looked at again when a file is read again. Not
// thread-safe.
#ifndef HEAPTAP_USERSPACE_ATTACH_REFUSALS_H_
#define HEAPTAP_USERSPACE_ATTACH_REFUSALS_H_

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "userspace/base/bounds.h"
#include "userspace/worker/file_version.h"

namespace heaptap::recording {

class Refusals {
 public:
  // Beyond these bounds, processes are looked at when they map a file or hit a probe.
  static constexpr size_t kMaxProcesses = 1024;  // of one file
  static constexpr size_t kMaxFiles = 1024;

  void Note(const worker::FileVersion& file, pid_t pid) {
    const auto known = by_file_.find(file);
    const size_t count = known == by_file_.end() ? 0 : known->second.size();
    if (count >= kMaxProcesses || (count == 0 && by_file_.size() >= kMaxFiles)) {
      return base::CountBeyond(base::Bound::kRefused);
    }
    by_file_[file].insert(pid);
  }
  // The processes of this file, which are forgotten.
  std::set<pid_t> Take(const worker::FileVersion& file) {
    auto taken = by_file_.extract(file);
    return taken.empty() ? std::set<pid_t>() : std::move(taken.mapped());
  }

 private:
  std::map<worker::FileVersion, std::set<pid_t>> by_file_;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_ATTACH_REFUSALS_H_
