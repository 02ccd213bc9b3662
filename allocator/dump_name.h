// SPDX-License-Identifier: Apache-2.0
//
// Names of the files that the process dumps into without having been told a name, as jemalloc makes them:
//
//   <prefix>[.<inode of the PID name space>].<pid>.<sequence>.<letter>[<number>].heap
//
// The sequence counts all dumps, the number those of one kind; the final one has none. The prefix is prof_prefix until
// prof.prefix changes it.
//
// Not thread safe: dump.cc serialises. Allocates nothing.
#ifndef HEAPTAP_ALLOCATOR_DUMP_NAME_H_
#define HEAPTAP_ALLOCATOR_DUMP_NAME_H_

#include <limits.h>

#include "heaptap/contract.h"

namespace heaptap {

// A prefix and what comes after it. Longer names are cut; they could not be opened anyway.
struct DumpName {
  static constexpr int kSuffixBytes = 128;
  char text[PATH_MAX + kSuffixBytes];
};

// False: the prefix is empty, which means that there are to be no automatic dumps.
bool HasDumpPrefix();
void MakeDumpName(heaptap_dump_kind kind, DumpName* name);
// <prefix>.<pid>.<sequence>.json
void MakeLogName(DumpName* name);

// Cut to PATH_MAX - 1 bytes.
void ChangePrefix(const char* prefix);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_DUMP_NAME_H_
