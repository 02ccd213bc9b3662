// SPDX-License-Identifier: Apache-2.0
//
// Waits for the unwind tables of the process's code, in exact mode.
//
// Until the collector has the table of a library, it needs a copy of each stack that passes through the library. If
// every allocation is a sample (lg_interval 0), a process produces thousands of copies before the table is ready, more
// than there is room for. So the process requests the tables and waits, with a time limit, when it starts and when it
// has opened a library. With other intervals nothing here waits.
//
// Any thread, no lock held. errno is kept. Zero-initialised state is valid.
#ifndef HEAPTAP_ALLOCATOR_PROFILING_CODE_TABLES_H_
#define HEAPTAP_ALLOCATOR_PROFILING_CODE_TABLES_H_

namespace heaptap {

// Requests the tables of all code that is mapped now, and waits for them. Returns at once unless every allocation is a
// sample and a collector records the process. After a timeout, requests pause for a minute.
void AwaitTables();

// The calling thread is about to open a library. `frame`: an address in the caller's stack frame. Forgets the known
// stacks (sampling/counting.h) if a library was unloaded since the last one was opened.
void NoteOpening(const void* frame);

// Called before a sample: waits if the calling thread has opened a library since the last call. While the thread may
// still be in dlopen, the next sample calls this again.
void AwaitTablesOfOpened();

// For the child of a fork, which must not call the dynamic linker: another thread may have held its locks.
void ResetCodeTablesAfterFork();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROFILING_CODE_TABLES_H_
