// SPDX-License-Identifier: Apache-2.0
//
// Dumps that the process requests from the collector (contract.h, struct heaptap_dump_request).
//
// Any thread, no lock held. A request waits for the collector, with a time limit, and other requests wait for their
// turn. Functions return 0 or an errno value. Errors are also printed to stderr, in one line each, with two exceptions:
//   EFAULT  no collector, the collector failed, the file could not be opened, or there is no prefix (not printed)
//   EAGAIN  the collector did not answer in time, or the calling thread is in the middle of a dump (not printed)
#ifndef HEAPTAP_ALLOCATOR_PROFILING_DUMP_H_
#define HEAPTAP_ALLOCATOR_PROFILING_DUMP_H_

#include <stdint.h>

#include "heaptap/contract.h"

namespace heaptap {

// A dump into the file `path`, as the process sees it; an existing file is overwritten. `path` nullptr: an automatic
// name (dump_name.h).
int Dump(heaptap_dump_kind kind, const char* path);

// A dump for a trigger, with an automatic name. Left out during another dump and in the minute after a triggered dump
// has failed. A missing collector is reported once.
void DumpOnTrigger(heaptap_dump_kind kind);

// Records of the latest `count` samples, into the open file `file_fd`, or as a log into `path` (nullptr: an automatic
// name).
int DumpRecords(heaptap_ask_kind kind, uint64_t count, int file_fd);
int DumpLog(uint64_t count, const char* path);

// Makes the collector forget all samples so far (HEAPTAP_ASK_RESET). Waits for the end of a dump.
void AskForReset(uint64_t lg_interval);

// prof.prefix: sets the prefix of automatic names. The text is copied, and cut if it is too long. EFAULT: another dump
// does not end in time.
int SetDumpPrefix(const char* prefix);

// The exit handler of prof_final: makes a dump. With prof_leak it prints a summary of the live memory; with
// prof_leak_error the exit status is 1 if there is any.
void DumpAtExit();

// For the child of a fork: no dump is under way there.
void ResetDumpsAfterFork();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROFILING_DUMP_H_
