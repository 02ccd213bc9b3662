// SPDX-License-Identifier: Apache-2.0
//
// A machine with more work than processors: a thread that goes before all others keeps the processor of this thread
// busy.
#ifndef HEAPTAP_TESTS_UNIT_SUPPORT_CROWDED_PROCESSOR_H_
#define HEAPTAP_TESTS_UNIT_SUPPORT_CROWDED_PROCESSOR_H_

#include <sched.h>
#include <stdlib.h>
#include <sys/types.h>

#include <atomic>
#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace heaptap {

// From its making until End() or its own end. To be used by one thread.
class CrowdedProcessor {
 public:
  CrowdedProcessor() {
    cpu_set_t all;
    if (sched_getaffinity(0, sizeof(all), &all) != 0) abort();
    CPU_ZERO(&one_);
    CPU_SET(sched_getcpu(), &one_);
    other_ = std::thread([this] {
      // The kernel shares a processor between sessions, so that ordinary threads would not keep the program of another
      // session from it.
      const sched_param least = {.sched_priority = sched_get_priority_min(SCHED_FIFO)};
      if (sched_setaffinity(0, sizeof(one_), &one_) != 0 || sched_setscheduler(0, SCHED_FIFO, &least) != 0) abort();
      for (is_busy_ = true; !is_over_;) {
      }
    });
    while (!is_busy_) absl::SleepFor(absl::Milliseconds(1));
  }
  ~CrowdedProcessor() { End(); }
  CrowdedProcessor(const CrowdedProcessor&) = delete;
  CrowdedProcessor& operator=(const CrowdedProcessor&) = delete;

  // From any thread: the processor is free soon.
  void Release() { is_over_ = true; }
  void End() {
    Release();
    if (other_.joinable()) other_.join();
  }

  // Moves a thread (0: this one) to that processor. False: there is no such thread.
  bool Take(pid_t thread) const { return sched_setaffinity(thread, sizeof(one_), &one_) == 0; }

 private:
  cpu_set_t one_;
  std::atomic<bool> is_busy_ = false;
  std::atomic<bool> is_over_ = false;
  std::thread other_;
};

}  // namespace heaptap

#endif  // HEAPTAP_TESTS_UNIT_SUPPORT_CROWDED_PROCESSOR_H_
