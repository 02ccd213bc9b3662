// SPDX-License-Identifier: Apache-2.0
//
// In exact mode, waiting for the unwind tables of the process's code.
//
// While the collector has no table of a library, it needs a copy of each stack that goes through it. Where each
// allocation is a sample (rate 0) a process makes thousands of them before the table is there, more than there is room
// for. So it asks for the tables and waits, with a bound, when it starts and when it has opened a library. At other
// rates nothing here waits.
//
// Thread safe; usable in zero-initialised state; no lock is held and errno is kept.
#ifndef HEAPTAP_ALLOCATOR_PROFILING_CODE_TABLES_H_
#define HEAPTAP_ALLOCATOR_PROFILING_CODE_TABLES_H_

namespace heaptap {

// Asks for the tables of all code that is mapped now, and waits for them. Returns at once if not each allocation is a
// sample, or no collector follows the process. A collector that does not answer in time is left alone for a minute.
void AwaitTables();

// The calling thread is about to open a library; `frame` is the address of a local variable of the caller.
void NoteOpening(const void* frame);

// Before a sample: waits if the calling thread has opened a library since the last call. While it may still be in
// dlopen, it is called before the next sample too.
void AwaitTablesOfOpened();

// Locks of the dynamic linker may stay taken in a forked child.
void ResetCodeTablesAfterFork();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROFILING_CODE_TABLES_H_
