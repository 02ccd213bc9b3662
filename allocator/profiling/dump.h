// SPDX-License-Identifier: Apache-2.0
//
// Dumps that the process asks the collector for (contract.h, struct heaptap_dump_request).
//
// Any thread, no lock held. Each waits for the collector, with a bound, and other requests wait behind it. Returned is
// 0 or an errno value, which has been told on stderr too, in one line:
//   EFAULT  there is no collector, it failed, the file could not be opened, or there is no prefix (not told)
//   EAGAIN  the collector did not answer in time, or the calling thread is in the middle of a dump (not told)
#ifndef HEAPTAP_ALLOCATOR_PROFILING_DUMP_H_
#define HEAPTAP_ALLOCATOR_PROFILING_DUMP_H_

#include <stdint.h>

#include "heaptap/contract.h"

namespace heaptap {

// Asks for a dump into the file `path` (a name of the process; an existing file is overwritten), or, if `path` is
// nullptr, into one with an automatic name (dump_name.h).
int Dump(heaptap_dump_kind kind, const char* path);

// A dump that a trigger wants, with an automatic name. Nobody waits for a second one: while another dump is under way
// it is left out, after one that failed triggers rest for a minute, and a missing collector is told of once.
void DumpOnTrigger(heaptap_dump_kind kind);

// A record of the latest `count` samples, into the open file `file_fd`, or into `path` (nullptr: an automatic name).
int DumpRecords(heaptap_ask_kind kind, uint64_t count, int file_fd);
int DumpLog(uint64_t count, const char* path);

// Begins new books (HEAPTAP_ASK_RESET), not in the middle of a dump.
void AskForReset(uint64_t lg_sample);

// prof.prefix: of the names of automatic dumps from now on; it is copied, and cut if it is too long. EFAULT: a dump
// that is under way does not end.
int SetDumpPrefix(const char* prefix);

// The handler of prof_final: a dump; with prof_leak a summary of what is still live; with prof_leak_error the exit
// status 1 if that is anything.
void DumpAtExit();

// The child of a fork has no dump under way.
void ResetDumpsAfterFork();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROFILING_DUMP_H_
