// SPDX-License-Identifier: Apache-2.0
//
// The files that the collector writes by itself: jemalloc's names, whole or not at all.
//
// A dump is written to a file without a name in the same folder and gets its name when it is complete. A file that
// is there already is never touched: the dump takes the next sequence number. The folder is opened once, so that
// nothing that happens to paths later moves the dumps elsewhere. Not thread safe.
#ifndef HEAPTAP_USERSPACE_SERVICE_DUMP_FOLDER_H_
#define HEAPTAP_USERSPACE_SERVICE_DUMP_FOLDER_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "heaptap/contract.h"
#include "userspace/elf/file_descriptor.h"

namespace heaptap::service {

// The numbers in the names of one process's dumps.
struct DumpSequence {
  uint64_t all = 0;
  uint64_t interval = 0;
  uint64_t manual = 0;
  uint64_t high_water = 0;
};

class DumpFolder {
 public:
  // Opens the folder of `prefix` ("name" or "folder/name"), and makes sure that files can be made there.
  // InvalidArgument: the prefix has no name. FailedPrecondition: no such folder, or not writable.
  static absl::StatusOr<DumpFolder> Open(absl::string_view prefix);

  // Writes <prefix>.<pid>.<seq>.<kind><n>.heap, a final one without <n>, mode 0600. Moves `sequence` on only when the
  // dump is there. Returns its path.
  absl::StatusOr<std::string> Write(pid_t pid, heaptap_dump_kind kind, DumpSequence& sequence,
                                    absl::string_view contents) const;
  // The same with a name of a process's choice in the place of the prefix's: what could lead elsewhere, or be hidden,
  // is replaced.
  absl::StatusOr<std::string> Write(absl::string_view name, pid_t pid, heaptap_dump_kind kind, DumpSequence& sequence,
                                    absl::string_view contents) const;
  // A descriptor of the folder, for the caller to close; negative: errno says why.
  int Duplicate() const;

 private:
  DumpFolder(elf::FileDescriptor folder, std::string parent, std::string name)
      : folder_(std::move(folder)), parent_(std::move(parent)), name_(std::move(name)) {}
  absl::StatusOr<std::string> WriteAs(const std::string& prefix, pid_t pid, heaptap_dump_kind kind,
                                      DumpSequence& sequence, absl::string_view contents) const;
  elf::FileDescriptor folder_;
  std::string parent_;  // "" or "folder/", for messages
  std::string name_;
};

// Writes all of `contents` to `fd` from its beginning. errno as write(2), 0 if all is well.
int WriteAll(int fd, absl::string_view contents);

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_DUMP_FOLDER_H_
