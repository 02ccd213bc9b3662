// SPDX-License-Identifier: Apache-2.0
//
// Counters of what this process leaves undone because somebody exceeds a bound. The table in userspace/README.md lists
// the bounds, and where else each of them is reported. Thread-safe.
#ifndef HEAPTAP_USERSPACE_BASE_BOUNDS_H_
#define HEAPTAP_USERSPACE_BASE_BOUNDS_H_

#include <cstdint>
#include <map>
#include <string>

namespace heaptap::base {

enum class Bound : uint8_t {
  kFilesOfProcess,  // a process has too many mapped files, and those beyond the bound were not looked at
  kFilesToRead,     // a file was not read, because too many files of its payer wait
  kMappings,        // the mappings of a process were forgotten, because its user has too many
  kRefused,         // a process that maps a refused file was not noted, and is not looked at again with the others
  kConnections,     // a connection was refused
  kClientTime,      // a client was told to ask later (status 429)
  kAnswerRoom,      // a client was refused, because its user has not read other answers
};

void CountBeyond(Bound bound);

// All counts, by the name of the bound: "files_of_process".
std::map<std::string, uint64_t> CountsBeyondBounds();

}  // namespace heaptap::base

#endif  // HEAPTAP_USERSPACE_BASE_BOUNDS_H_
