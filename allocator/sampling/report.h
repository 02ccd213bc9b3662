// SPDX-License-Identifier: Apache-2.0
//
// The report of a sample: the probes fire, the sample is counted, and the listener is called. These functions are
// inlined into the functions of core/observer.h. A call would cost instructions, and a frame in the stack of each
// sample.
//
// Any thread, no lock held, in no HeapScope.
#ifndef HEAPTAP_ALLOCATOR_SAMPLING_REPORT_H_
#define HEAPTAP_ALLOCATOR_SAMPLING_REPORT_H_

#include <stdint.h>

#include <atomic>

#include "allocator/core/observer.h"
#include "allocator/core/slab.h"
#include "allocator/platform/mutex.h"
#include "allocator/sampling/counting.h"
#include "allocator/sampling/listener.h"
#include "allocator/sampling/pending_frees.h"
#include "allocator/sampling/probe_sites.h"
#include "allocator/sampling/probes.h"
#include "allocator/sampling/statistics.h"
#include "allocator/sampling/told_rate.h"
#include "heaptap/contract.h"

namespace heaptap {
namespace report_internal {

// The number of the current preparation of all threads.
extern std::atomic<uint64_t> preparation;
// The number of the thread's last preparation. If it differs from `preparation`, PrepareThread calls the listener.
extern constinit thread_local uint64_t prepared;
void PrepareThread(uint64_t current);

extern std::atomic<uint64_t> last_serial;

}  // namespace report_internal

// observer::NextSerial
inline uint64_t NewSerial() {
  const uint64_t serial = report_internal::last_serial.fetch_add(1, std::memory_order_relaxed) + 1;
  if (HEAPTAP_UNLIKELY(serial == HEAPTAP_UNCONFIRMED_SAMPLES)) DropUnconfirmedRate();
  return serial;
}

// `frame`: as in counting::Find, if later samples of the caller may be counted; else 0.
[[gnu::always_inline]] inline void ReportAllocated(const void* pointer, const observer::Sample& sample, uint64_t weight,
                                                   uint64_t frame) {
  HEAPTAP_ASSERT(!Mutex::HoldsAny());
  const uint64_t current = report_internal::preparation.load(std::memory_order_relaxed);
  if (HEAPTAP_UNLIKELY(report_internal::prepared != current)) report_internal::PrepareThread(current);
  const ThreadFrees pending = PendingFreesOfThread();
  const auto probe = CanUseCallSite() ? heaptap_probe_alloc_by_call : heaptap_probe_alloc;
  const uint64_t mailbox = frame != 0 ? counting::MailboxOfThread() : 0;
  probe(pointer, sample.usable, weight, sample.serial, pending.frees,
        pending.where | mailbox << HEAPTAP_WHERE_MAILBOX_SHIFT);
  if (HEAPTAP_UNLIKELY(mailbox != 0)) counting::Learn(frame, sample.serial);
  if (pending.has_any()) ForgetFreesOfThread();
  if (HasSampleStatistics()) CountSampleAllocated(sample.usable, sample.requested);
  listener::AfterSample(pointer, sample.usable, sample.requested);
}

// A sample that is counted in place of a report.
[[gnu::always_inline]] inline void ReportCounted(const void* pointer, const observer::Sample& sample, uint32_t counts) {
  counting::CountAllocated(counts, sample.usable);
  if (HasSampleStatistics()) CountSampleAllocated(sample.usable, sample.requested);
  listener::AfterSample(pointer, sample.usable, sample.requested);
}

[[gnu::always_inline]] inline void ReportFreed(const void* pointer, const observer::Sample& sample) {
  HEAPTAP_ASSERT(!Mutex::HoldsAny());
  listener::BeforeSampleFreed(pointer, sample.usable);
  if (HasSampleStatistics()) CountSampleFreed(sample.usable, sample.requested);
  if (counting::IsCounted(sample.serial)) return counting::CountFreed(sample.serial, sample.usable);
  heaptap_probe_free(pointer);
  // ReportFree checks this too. The check here saves the call where nobody listens.
  if (!HasListener(heaptap_semaphore_frees)) return;
  ReportFree({reinterpret_cast<uint64_t>(pointer), sample.serial}, sample.usable);
}

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_SAMPLING_REPORT_H_
