// SPDX-License-Identifier: Apache-2.0
#include "userspace/service/answers.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "userspace/service/messages.h"

namespace heaptap::service {
namespace {

// Reaps a child. Returns whether it had ended, and adds 1 to *failed if it failed and that is anybody's concern.
bool ReapOne(pid_t child, uint64_t process_id, int options, int* failed) {
  int status = 0;
  pid_t reaped;
  while ((reaped = waitpid(child, &status, options)) < 0 && errno == EINTR) {
  }
  if (reaped == 0) return false;
  if (reaped < 0) return true;  // somebody else did
  if (process_id == Answers::kStranger) return true;
  if (WIFSIGNALED(status)) Say("a process that asked for a dump did not let it be written in time");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) ++*failed;
  return true;
}

}  // namespace

Answers::~Answers() {
  int failed = 0;
  for (const auto& [child, process_id] : running_) ReapOne(child, process_id, 0, &failed);
}

absl::Status Answers::Start(uint64_t process_id, absl::FunctionRef<absl::Status()> answer) {
  if (running_.size() >= kMaxRunning) return absl::ResourceExhaustedError("too many dumps are being written");
  const pid_t child = fork();
  if (child < 0) return absl::UnavailableError(absl::StrCat("fork: ", strerror(errno)));
  if (child == 0) {
    sigset_t alarm_only;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    signal(SIGALRM, SIG_DFL);
    sigprocmask(SIG_UNBLOCK, &alarm_only, nullptr);
    alarm(limit_seconds_);
    const absl::Status status = answer();
    if (!status.ok()) Say(status.message());
    _exit(status.ok() ? 0 : 1);
  }
  running_[child] = process_id;
  return absl::OkStatus();
}

int Answers::Reap() {
  int failed = 0;
  std::erase_if(running_, [&](const auto& entry) { return ReapOne(entry.first, entry.second, WNOHANG, &failed); });
  return failed;
}

int Answers::WaitFor(uint64_t process_id) {
  int failed = 0;
  std::erase_if(running_, [&](const auto& entry) {
    return entry.second == process_id && ReapOne(entry.first, entry.second, 0, &failed);
  });
  return failed;
}

}  // namespace heaptap::service
