// SPDX-License-Identifier: Apache-2.0
//
// The record of single samples that the collector keeps for prof_recent and the prof log (profiling.h). Whether it
// does is up to the kernel's books, so it is told: when it changes, and before the first sample that somebody hears.
//
// Any thread, no lock held. Zero-initialised state is valid: no record.
#ifndef HEAPTAP_ALLOCATOR_SAMPLE_RECORDS_H_
#define HEAPTAP_ALLOCATOR_SAMPLE_RECORDS_H_

namespace heaptap {

// Begins what the process's configuration asks for. Once, before other threads.
void StartRecords();

// The child of a fork makes no log: that is its parent's.
void ResetRecordsAfterFork();

// Tells the collector whether a record is to be kept, if it may think otherwise.
void IntroduceRecords();

// Counts a sample, while a log is made.
void CountLoggedSample();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_SAMPLE_RECORDS_H_
