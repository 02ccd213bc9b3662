// SPDX-License-Identifier: Apache-2.0
//
// The threads of a recording for long work. Each kind of work has its own thread, so it waits only for work of that
// kind. Not thread-safe: one thread owns this object.
#ifndef HEAPTAP_USERSPACE_RECORDING_THREADS_H_
#define HEAPTAP_USERSPACE_RECORDING_THREADS_H_

#include <array>
#include <vector>

#include "userspace/base/background.h"

namespace heaptap::recording {

class Threads {
 public:
  explicit Threads(base::Background::Place place) : profiles(place), endings(place), cleaning(place), files(place) {}

  base::Background profiles;  // profiles and dumps of processes that run
  base::Background endings;   // last dumps, thousands when many processes end together
  base::Background cleaning;  // deletes books
  base::Background files;     // small files in the folder of the recording, on a disk that may be slow

  // Like those of Background.
  std::vector<int> fds() const { return {profiles.fd(), endings.fd(), cleaning.fd(), files.fd()}; }
  void HandleDone() {
    for (base::Background* const one : All()) one->HandleDone();
  }
  bool IsIdle() const { return profiles.size() + endings.size() + cleaning.size() + files.size() == 0; }

 private:
  std::array<base::Background*, 4> All() { return {&profiles, &endings, &cleaning, &files}; }
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_RECORDING_THREADS_H_
