// SPDX-License-Identifier: Apache-2.0
#include "allocator/platform/clock.h"

#include <stdint.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <time.h>

#include <atomic>

#include "allocator/platform/system.h"
#include "allocator/platform/vdso.h"

namespace heaptap {
namespace {

constinit std::atomic<ClockFunction> vdso_clock;

}  // namespace

void StartClock() {
  const void* image = reinterpret_cast<const void*>(getauxval(AT_SYSINFO_EHDR));
  vdso_clock.store(FindVdsoClock(image), std::memory_order_relaxed);
}

uint64_t ReadClock(clockid_t clock) {
  timespec now{};
  ClockFunction read = vdso_clock.load(std::memory_order_relaxed);
  if (read == nullptr || read(clock, &now) != 0) SystemCall(SYS_clock_gettime, clock, reinterpret_cast<long>(&now));
  return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace heaptap
