// SPDX-License-Identifier: Apache-2.0
//
// Automatic names of dump files, as jemalloc forms them:
//
//   <prefix>[.<inode of the PID namespace>].<pid>.<sequence>.<letter>[<number>].heap
//
// The sequence counts all dumps, the number counts the dumps of one kind; the final dump has no number. The prefix is
// prof_prefix until prof.prefix changes it.
//
// Not thread safe: the caller holds a DumpScope (dump.cc). Allocates nothing.
#ifndef HEAPTAP_ALLOCATOR_PROFILING_DUMP_NAME_H_
#define HEAPTAP_ALLOCATOR_PROFILING_DUMP_NAME_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "heaptap/contract.h"

namespace heaptap {

// A file name that is built piece by piece. Names longer than PATH_MAX plus a suffix are cut, and cannot be opened
// anyway. Too large for the stack of a small thread or a signal handler.
class DumpName {
 public:
  void Clear() { length_ = 0; }
  DumpName& operator<<(const char* text);
  DumpName& operator<<(uint64_t number);
  DumpName& operator<<(char letter);
  const char* text() const { return text_; }

 private:
  static constexpr size_t kSuffixBytes = 128;
  char text_[PATH_MAX + kSuffixBytes];
  size_t length_;
};

// False: the prefix is empty, which disables automatic dumps.
bool HasDumpPrefix();
void MakeDumpName(heaptap_dump_kind kind, DumpName* name);
// <prefix>.<pid>.<sequence>.json
void MakeLogName(DumpName* name);

// Cut to PATH_MAX - 1 bytes.
void ChangePrefix(const char* prefix);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROFILING_DUMP_NAME_H_
