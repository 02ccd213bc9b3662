// SPDX-License-Identifier: Apache-2.0
#include "allocator/process/collector.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>

#include <atomic>

#include "allocator/core/control.h"
#include "allocator/platform/system.h"
#include "allocator/sampling/probes.h"

namespace heaptap {
namespace {

constinit std::atomic<bool> semaphores_lie;

}  // namespace

bool HasCollector() {
  if (__atomic_load_n(&heaptap_semaphore_dump, __ATOMIC_RELAXED) == 0) return false;
  return !semaphores_lie.load(std::memory_order_relaxed) || control::CollectorPid() != 0;
}

bool HasCollectorEnded() {
  constexpr char kFirst[] = "pid:[4026531836]";  // PROC_PID_INIT_INO of include/linux/proc_ns.h
  constexpr long kLength = sizeof(kFirst) - 1;
  const uint32_t pid = control::CollectorPid();
  char name[sizeof(kFirst)];
  if (pid == 0 || SystemCall(SYS_readlink, reinterpret_cast<long>("/proc/self/ns/pid"), reinterpret_cast<long>(name),
                             sizeof(name)) != kLength) {
    return false;
  }
  return memcmp(name, kFirst, kLength) == 0 && SystemCall(SYS_kill, pid, 0) == -ESRCH;
}

void DistrustSemaphores() { semaphores_lie.store(true, std::memory_order_relaxed); }

}  // namespace heaptap
