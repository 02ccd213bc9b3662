// SPDX-License-Identifier: Apache-2.0
//
// Processes that should have a library of heaptap, because LD_PRELOAD names one, but do not have it, because no library
// can be preloaded into them.
#ifndef HEAPTAP_USERSPACE_DAEMON_UNSERVED_H_
#define HEAPTAP_USERSPACE_DAEMON_UNSERVED_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "userspace/elf/mappings.h"
#include "userspace/process/start_facts.h"

namespace heaptap::daemon {

// Why the process does not have the library, such as "it is statically linked". Empty: the process has the library, or
// its LD_PRELOAD names none.
std::string WhyUnserved(const process::StartFacts& start, const std::vector<elf::Mapping>& executable_mappings);

struct UnservedProcess {
  pid_t pid = 0;
  std::string command = {};  // printable
  std::string why = {};
};

// All such processes that this user may inspect, by PID. A process whose memory does not answer in time is left out.
// Takes a tenth of a millisecond per process.
std::vector<UnservedProcess> FindUnserved();

}  // namespace heaptap::daemon

#endif  // HEAPTAP_USERSPACE_DAEMON_UNSERVED_H_
