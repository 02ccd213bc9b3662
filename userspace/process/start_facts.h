// SPDX-License-Identifier: Apache-2.0
//
// How a process was started, as far as that decides what can be preloaded into it.
#ifndef HEAPTAP_USERSPACE_PROCESS_START_FACTS_H_
#define HEAPTAP_USERSPACE_PROCESS_START_FACTS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace heaptap::process {

// The process can write anything into the texts; they may hold any byte but NUL.
struct StartFacts {
  bool is_secure = false;                   // AT_SECURE: set-user-ID or with capabilities; LD_PRELOAD is ignored
  bool has_other_mounts = false;            // it is not in this process's mount namespace
  std::string preload = {};                 // LD_PRELOAD in its first environment
  std::vector<std::string> arguments = {};  // its command line, from the program's name on
};

// Reads a bounded number of bytes from /proc/PID, which can wait for the memory of the process. Has the errors of
// ReadMaps (maps.h). Thread-safe.
absl::StatusOr<StartFacts> ReadStartFacts(pid_t pid);

// Writes the facts as text, and reads them back. InvalidArgument: the text has another form.
std::string Encode(const StartFacts& facts);
absl::StatusOr<StartFacts> DecodeStartFacts(absl::string_view text);

// Arguments as a shell reads them, in printable ASCII; cut, with " ..." at the end, if they are long.
std::string ShellWords(const std::vector<std::string>& words);

}  // namespace heaptap::process

#endif  // HEAPTAP_USERSPACE_PROCESS_START_FACTS_H_
