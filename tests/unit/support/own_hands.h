// SPDX-License-Identifier: Apache-2.0
//
// The hands that this process has started (userspace/crews/hands.h), for tests that stop or kill them.
#ifndef HEAPTAP_TESTS_UNIT_SUPPORT_OWN_HANDS_H_
#define HEAPTAP_TESTS_UNIT_SUPPORT_OWN_HANDS_H_

#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/process/handle.h"
#include "userspace/process/proc_files.h"

namespace heaptap {

// Those that have ended do not count.
inline std::vector<pid_t> OwnHands() {
  const auto is_child = [](pid_t pid) {
    std::ifstream file(absl::StrCat("/proc/", pid, "/status"));
    for (std::string line; std::getline(file, line);) {
      if (line == absl::StrCat("PPid:\t", getpid())) return true;
    }
    return false;
  };
  std::vector<pid_t> hands;
  const absl::StatusOr<std::vector<pid_t>> pids = process::ListProcesses();
  for (const pid_t pid : *pids) {
    if (process::NameOf(pid) == "heaptap-hands" && is_child(pid) && process::HasMainThread(pid)) hands.push_back(pid);
  }
  return hands;
}

// Returns when they are stopped. Before, they would count as hands that only wait for a processor.
inline void StopOwnHands() {
  for (const pid_t pid : OwnHands()) {
    kill(pid, SIGSTOP);
    siginfo_t info;
    waitid(P_PID, pid, &info, WSTOPPED | WEXITED | WNOWAIT);
  }
}

}  // namespace heaptap

#endif  // HEAPTAP_TESTS_UNIT_SUPPORT_OWN_HANDS_H_
