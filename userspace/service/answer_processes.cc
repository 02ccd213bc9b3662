// SPDX-License-Identifier: Apache-2.0
#include "userspace/service/answer_processes.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "userspace/service/messages.h"

namespace heaptap::service {

// Returns whether it had ended.
bool AnswerProcesses::ReapOne(pid_t child, uint64_t process_id, int options) {
  int status = 0;
  pid_t reaped;
  while ((reaped = waitpid(child, &status, options)) < 0 && errno == EINTR) {
  }
  if (reaped == 0) return false;
  if (reaped < 0) return true;  // already reaped elsewhere
  if (process_id == kUnrecorded) return true;
  if (WIFSIGNALED(status))
    Say("gave up writing a dump that a process asked for: its file or its memory blocked too long");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) failures_[process_id]++;
  return true;
}

AnswerProcesses::~AnswerProcesses() {
  for (const auto& [child, process_id] : running_) ReapOne(child, process_id, 0);
}

absl::Status AnswerProcesses::Start(uint64_t process_id, absl::FunctionRef<absl::Status()> answer) {
  if (!HasRoom(process_id))
    return absl::ResourceExhaustedError("too many dumps are being written at once; a request is dropped");
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return absl::UnavailableError(absl::StrCat("fork: ", strerror(errno)));
  if (child == 0) {
    // The child holds the collector's sockets and locks, and must not keep them from the next collector.
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(1);
    sigset_t alarm_only;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    signal(SIGALRM, SIG_DFL);
    sigprocmask(SIG_UNBLOCK, &alarm_only, nullptr);
    alarm(limit_seconds_);
    // An exception must not unwind into this copy of the collector's own handlers.
    const absl::Status status = [&]() noexcept { return answer(); }();
    if (!status.ok()) Say(status.message());
    _exit(status.ok() ? 0 : 1);
  }
  running_[child] = process_id;
  return absl::OkStatus();
}

int AnswerProcesses::Reap() {
  const auto count = [this] {
    int sum = 0;
    for (const auto& [process_id, failures] : failures_) sum += failures;
    return sum;
  };
  const int before = count();
  std::erase_if(running_, [&](const auto& entry) { return ReapOne(entry.first, entry.second, WNOHANG); });
  return count() - before;
}

bool AnswerProcesses::HasRoom(uint64_t process_id) const {
  const size_t bound = process_id == kUnrecorded ? kMaxRunningOfUnrecorded : kMaxRunningOfOne;
  const auto is_of_one = [&](const auto& entry) { return entry.second == process_id; };
  return running_.size() < kMaxRunning &&
         static_cast<size_t>(std::count_if(running_.begin(), running_.end(), is_of_one)) < bound;
}

void AnswerProcesses::Drop(uint64_t process_id) {
  failures_.erase(process_id);
  for (auto& [child, of] : running_) {
    if (of == process_id) of = kUnrecorded;
  }
}

bool AnswerProcesses::IsRunning(uint64_t process_id) const {
  return std::any_of(running_.begin(), running_.end(), [&](const auto& entry) { return entry.second == process_id; });
}

int AnswerProcesses::TakeFailures(uint64_t process_id) {
  const auto found = failures_.find(process_id);
  if (found == failures_.end()) return 0;
  const int failures = found->second;
  failures_.erase(found);
  return failures;
}

int AnswerProcesses::WaitFor(uint64_t process_id) {
  std::erase_if(running_,
                [&](const auto& entry) { return entry.second == process_id && ReapOne(entry.first, entry.second, 0); });
  return TakeFailures(process_id);
}

}  // namespace heaptap::service
