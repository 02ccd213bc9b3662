// SPDX-License-Identifier: Apache-2.0
#include "allocator/sampling/events.h"

#include <stdint.h>

#include <atomic>

#include "allocator/sampling/report.h"
#include "allocator/sampling/sampled_blocks.h"

namespace heaptap {

namespace report_internal {

constinit std::atomic<uint64_t> preparation{1};
constinit thread_local uint64_t prepared = 0;
constinit std::atomic<uint64_t> last_serial;

}  // namespace report_internal

namespace {

using report_internal::preparation;
using report_internal::prepared;

// Bit of `prepared`: the listener wants another call. `preparation` never counts this far.
constexpr uint64_t kOnceMore = uint64_t{1} << 63;

}  // namespace

void report_internal::PrepareThread(uint64_t current) {
  const bool is_first = (prepared & ~kOnceMore) != current;
  prepared = current;
  listener::PrepareThread(is_first);
}

void PrepareThreadAgain() { prepared = 0; }

void CallBeforeNextSample() { prepared |= kOnceMore; }

void PrepareAllThreadsAgain() { preparation.fetch_add(1, std::memory_order_relaxed); }

uint64_t observer::NextSerial() { return NewSerial(); }

void observer::Allocated(const void* pointer, const Sample& sample, uint64_t weight) {
  ReportAllocated(pointer, sample, weight, 0);
}

void observer::Freed(const void* pointer, const Sample& sample) { ReportFreed(pointer, sample); }

// The collector counts the loss. Without one, the probe does nothing.
void observer::Lost(uint64_t weight) {
  heaptap_dump_request request{};
  request.kind = HEAPTAP_ASK_LOST;
  request.argument = weight;
  heaptap_probe_dump(&request);
}

void observer::ThreadEnds() {
  ReportFreesOfThread();
  ReturnKeptBlocks();
  counting::EndThread();
}

}  // namespace heaptap
