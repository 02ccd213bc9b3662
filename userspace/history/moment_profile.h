// SPDX-License-Identifier: Apache-2.0
//
// Moments of the history as profiles, for the views of other profiles. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_HISTORY_MOMENT_PROFILE_H_
#define HEAPTAP_USERSPACE_HISTORY_MOMENT_PROFILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "userspace/history/timeline_data.h"
#include "userspace/profile/profile.h"
#include "userspace/profile/source_frames.h"

namespace heaptap::history {

struct MomentProfile {
  // Live estimates only: what was allocated and freed before is not known by call path.
  profile::Profile profile = {};
  // Names by call address, innermost first.
  absl::flat_hash_map<uint64_t, std::vector<profile::SourceFrame>> symbols = {};
};

// Makes profiles whose addresses can be compared: the same path (PathKey) has the same addresses in all of them,
// whichever process and whichever build of the program had it. The addresses mean nothing else.
class MomentProfiles {
 public:
  // REQUIRES: the timeline has one point.
  MomentProfile Make(const Timeline& moment);

 private:
  // `path_key`: the PathKey of the path up to this frame.
  uint64_t AddressOf(const std::string& library, std::string path_key);

  struct Library {
    uint64_t number = 0;  // from 1
    std::string path = {};
  };
  std::map<std::string, uint64_t> addresses_;  // by path key
  std::map<std::string, Library> libraries_;   // by file name
};

}  // namespace heaptap::history

#endif  // HEAPTAP_USERSPACE_HISTORY_MOMENT_PROFILE_H_
