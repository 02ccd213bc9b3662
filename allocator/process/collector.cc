// SPDX-License-Identifier: Apache-2.0
#include "allocator/process/collector.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>

#include <atomic>

#include "allocator/core/control.h"
#include "allocator/platform/system.h"
#include "allocator/sampling/probes.h"

namespace heaptap {
namespace {

constinit std::atomic<bool> semaphores_distrusted;

}  // namespace

bool HasCollector() {
  if (!HasListener(heaptap_semaphore_dump)) return false;
  return !semaphores_distrusted.load(std::memory_order_relaxed) || control::CollectorPid() != 0;
}

bool HasCollectorEnded() {
  if (control::HasCollectorLeft()) return true;
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

void DistrustSemaphores() { semaphores_distrusted.store(true, std::memory_order_relaxed); }

}  // namespace heaptap
