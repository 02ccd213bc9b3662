// SPDX-License-Identifier: Apache-2.0
//
// Another process, for tests that examine one.
#ifndef HEAPTAP_TESTS_UNIT_SUPPORT_CHILD_H_
#define HEAPTAP_TESTS_UNIT_SUPPORT_CHILD_H_

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace heaptap {

// A copy of this process that runs until it is ended.
class Child {
 public:
  // Returns when the child has done `prepare`, or executes another program in it. `then` is what it does next.
  explicit Child(
      const std::function<bool()>& prepare = [] { return true; }, const std::function<void()>& then = [] {}) {
    int done[2];
    if (pipe2(done, O_CLOEXEC) != 0) abort();
    pid_ = fork();
    if (pid_ < 0) abort();
    if (pid_ == 0) {
      const char ok = prepare() ? 1 : 0;
      if (write(done[1], &ok, 1) != 1) _exit(1);
      then();
      for (;;) pause();
    }
    close(done[1]);
    char ok = 0;
    is_ready_ = read(done[0], &ok, 1) == 0 || ok == 1;
    close(done[0]);
  }
  ~Child() { End(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  // The result of `prepare`.
  bool is_ready() const { return is_ready_; }

  // Leaves a zombie.
  void Kill() const {
    kill(pid_, SIGKILL);
    siginfo_t information;
    waitid(P_PID, static_cast<id_t>(pid_), &information, WEXITED | WNOWAIT);
  }
  void End() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  bool is_ready_ = false;
};

}  // namespace heaptap

#endif  // HEAPTAP_TESTS_UNIT_SUPPORT_CHILD_H_
