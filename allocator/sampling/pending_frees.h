// SPDX-License-Identifier: Apache-2.0
//
// Frees of samples that threads hold back from the collector (contract.h, heaptap:frees): the news of a free needs no
// stack, so it can wait for the thread's next sample and cost no breakpoint of its own.
//
// Each heap has a slot, which only its thread writes and anybody may read. Frees are recognised by their serial
// numbers, so it does no harm if one is passed on twice.
//
// Any thread, any time, with no lock held. Zero-initialised state is valid: nothing is held back.
#ifndef HEAPTAP_ALLOCATOR_SAMPLING_PENDING_FREES_H_
#define HEAPTAP_ALLOCATOR_SAMPLING_PENDING_FREES_H_

#include <stddef.h>
#include <stdint.h>

#include "heaptap/contract.h"

namespace heaptap {

// Reports a free, now or later. `usable`: the usable size of the block.
void ReportFree(const struct heaptap_free& freed, size_t usable);

// PendingFreesOfThread returns what the calling thread holds back, for its next sample to pass on. ForgetFreesOfThread
// says that the frees were passed on.
struct ThreadFrees {
  const struct heaptap_free* frees;  // not null
  uint64_t where;                    // HEAPTAP_WHERE

  bool has_any() const { return static_cast<uint32_t>(where) != 0; }
};
ThreadFrees PendingFreesOfThread();
void ForgetFreesOfThread();

// Reports now what the calling thread holds back, or what all threads hold back.
void ReportFreesOfThread();
void ReportFreesOfAllThreads();

// Sets whether frees are reported at once from now on, because a record of a free needs its stack.
void ReportFreesAtOnce(bool at_once);

// The process ends: reports all frees, and from now on each at once.
void EndPendingFrees();

// In the child of a fork: the frees are the parent's.
void ForgetFreesAfterFork();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_SAMPLING_PENDING_FREES_H_
