// SPDX-License-Identifier: Apache-2.0
//
// A fault point at each instruction: what a signal handler, or a reader in the kernel, can meet in the middle of a
// call.
#ifndef HEAPTAP_TESTS_ALLOCATOR_SINGLE_STEP_H_
#define HEAPTAP_TESTS_ALLOCATOR_SINGLE_STEP_H_

#include <signal.h>

#include <functional>

namespace heaptap::testing {

// While it lives, the processor traps after each instruction of the thread, and `look` runs in the signal handler,
// whose own instructions do not trap. One at a time; not with ThreadSanitizer, which delays signals.
class SingleStep {
 public:
  explicit SingleStep(std::function<void()> look) {
    Look() = std::move(look);
    struct sigaction action {};
    action.sa_handler = [](int) { Look()(); };
    sigaction(SIGTRAP, &action, &old_);
    // Below the red zone of the function that this is inlined into.
    asm volatile("lea -128(%%rsp), %%rsp; pushfq; orq %0, (%%rsp); popfq; lea 128(%%rsp), %%rsp" ::"i"(kTrapFlag)
                 : "memory", "cc");
  }
  ~SingleStep() {
    asm volatile("lea -128(%%rsp), %%rsp; pushfq; andq %0, (%%rsp); popfq; lea 128(%%rsp), %%rsp" ::"i"(~kTrapFlag)
                 : "memory", "cc");
    sigaction(SIGTRAP, &old_, nullptr);
    Look() = nullptr;
  }
  SingleStep(const SingleStep&) = delete;
  SingleStep& operator=(const SingleStep&) = delete;

 private:
  static constexpr int kTrapFlag = 0x100;  // TF of EFLAGS

  static std::function<void()>& Look() {
    static std::function<void()> look;
    return look;
  }

  struct sigaction old_ {};
};

}  // namespace heaptap::testing

#endif  // HEAPTAP_TESTS_ALLOCATOR_SINGLE_STEP_H_
