// SPDX-License-Identifier: Apache-2.0
//
// The file of a dump, with the rights of the process.
//
// A dump with an automatic name goes to a new file that only the process's user may read. Anything that others have put
// under this name, even a link, stays as it is, and the next name is taken. A dump that the program has named follows
// links, and replaces the contents of an existing file, as jemalloc's dumps do.
//
// A new file gets its name when it is complete; until then it is <name>.<pid>.part. So no name ever holds half a dump,
// even if a process is killed or the disk is full.
//
// Not thread safe: the caller holds a DumpScope (dump.cc). Allocates nothing.
#ifndef HEAPTAP_ALLOCATOR_PROFILING_DUMP_FILE_H_
#define HEAPTAP_ALLOCATOR_PROFILING_DUMP_FILE_H_

#include <stdint.h>
#include <sys/types.h>

#include "allocator/platform/system.h"

namespace heaptap {

// At most one object exists at a time.
class DumpFile {
 public:
  // Opens the file. `kind`: heaptap_dump_kind, or HEAPTAP_ASK_LOG. `path`: must outlive the object; nullptr: an
  // automatic name.
  DumpFile(uint32_t kind, const char* path);
  // Removes what the object has created, unless Finish() has succeeded.
  ~DumpFile();
  DumpFile(const DumpFile&) = delete;
  DumpFile& operator=(const DumpFile&) = delete;

  // False: the file could not be opened, or is not one that the collector writes to.
  bool IsRegular() const;
  int number() const { return file_.number(); }
  const char* path() const { return path_; }
  // Gives a complete file its name. False: failed.
  bool Finish();

 private:
  void OpenPart(mode_t mode);
  void OpenInPlace();
  bool NamePart();

  const uint32_t kind_;
  const bool is_automatic_;
  const char* path_;
  const char* created_ = nullptr;  // what the destructor removes
  FileDescriptor file_;
};

// The name that the latest dump with an automatic name got.
const char* LastAutomaticName();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROFILING_DUMP_FILE_H_
