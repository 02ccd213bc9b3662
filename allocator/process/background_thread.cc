// SPDX-License-Identifier: Apache-2.0
#include "allocator/process/background_thread.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

#include <atomic>

#include "allocator/core/control.h"
#include "allocator/core/decay.h"
#include "allocator/core/thread.h"
#include "allocator/platform/libc.h"
#include "allocator/platform/mutex.h"
#include "allocator/platform/system.h"

namespace heaptap {
namespace {

constexpr char kName[] = "heaptap-purge";

// Milliseconds between two rounds: the pause while memory is dirty, and the longest pause while none is. A GiB that is
// freed at the beginning of the longest pause has gone back within ten seconds.
constexpr uint64_t kShortest = 50;
constexpr uint64_t kLongest = 5000;

constinit Mutex thread_mutex{LockRank::kBackgroundThread};
// Under thread_mutex.
bool has_thread;
pthread_t thread;

constinit std::atomic<uint32_t> shall_stop;

// Signals 32 to 34 are libc's own, by which it makes all threads do something, for example change the user.
constexpr uint64_t kLibcSignals = uint64_t{7} << 31;

// True: the thread must stop.
bool Sleep(uint64_t milliseconds) {
  constexpr uint64_t kPerSecond = 1000;
  constexpr uint64_t kNanoseconds = 1000000;
  const timespec pause = {.tv_sec = static_cast<time_t>(milliseconds / kPerSecond),
                          .tv_nsec = static_cast<long>(milliseconds % kPerSecond * kNanoseconds)};
  if (shall_stop.load(std::memory_order_acquire) == 0) {
    SystemCall(SYS_futex, reinterpret_cast<long>(&shall_stop), FUTEX_WAIT_PRIVATE, 0, reinterpret_cast<long>(&pause));
  }
  return shall_stop.load(std::memory_order_acquire) != 0;
}

void* Run(void*) {
  SystemCall(SYS_prctl, PR_SET_NAME, reinterpret_cast<long>(kName));
  for (uint64_t pause = kShortest; !Sleep(pause);) {
    ReturnMemory();
    const bool is_dirty = DirtyDecay() >= 0 && ReadFigure(&heaptap_statistics::dirty) != 0;
    pause = is_dirty ? kShortest : pause * 2 < kLongest ? pause * 2 : kLongest;
  }
  return nullptr;
}

}  // namespace

bool StartBackgroundThread() {
  const libc::ThreadFunctions functions = libc::FindThreadFunctions();
  MutexLock lock(thread_mutex);
  if (has_thread) return true;
  shall_stop.store(0, std::memory_order_relaxed);
  if (!functions) return false;
  // The program's signals are for its own threads.
  const uint64_t all = ~kLibcSignals;
  uint64_t old;
  const bool is_set = SystemCall(SYS_rt_sigprocmask, SIG_SETMASK, reinterpret_cast<long>(&all),
                                 reinterpret_cast<long>(&old), sizeof(all)) == 0;
  has_thread = functions.create(&thread, nullptr, Run, nullptr) == 0;
  if (is_set) SystemCall(SYS_rt_sigprocmask, SIG_SETMASK, reinterpret_cast<long>(&old), 0, sizeof(old));
  return has_thread;
}

void StopBackgroundThread() {
  const libc::ThreadFunctions functions = libc::FindThreadFunctions();
  MutexLock lock(thread_mutex);
  if (!has_thread) return;
  shall_stop.store(1, std::memory_order_release);
  SystemCall(SYS_futex, reinterpret_cast<long>(&shall_stop), FUTEX_WAKE_PRIVATE, 1);
  functions.join(thread, nullptr);
  has_thread = false;
}

bool HasBackgroundThread() {
  MutexLock lock(thread_mutex);
  return has_thread;
}

void ForgetBackgroundThread() {
  thread_mutex.Reset();
  has_thread = false;
}

}  // namespace heaptap
