// SPDX-License-Identifier: Apache-2.0
//
// The dumps that the collector writes on its own: with jemalloc's names, complete or not at all.
//
// A dump is written to an unnamed file in the same folder and gets its name when it is complete. An existing file is
// never touched: the dump takes the next sequence number. The folder is opened once, so that a later change of paths
// cannot redirect dumps. Not thread safe.
#ifndef HEAPTAP_USERSPACE_RECORDING_DUMP_FOLDER_H_
#define HEAPTAP_USERSPACE_RECORDING_DUMP_FOLDER_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "heaptap/contract.h"
#include "userspace/base/file_descriptor.h"

namespace heaptap::recording {

// The numbers in the names of one process's dumps.
struct DumpSequence {
  uint64_t all = 0;
  uint64_t interval = 0;
  uint64_t manual = 0;
  uint64_t high_water = 0;
};

class DumpFolder {
 public:
  // Opens the folder of `prefix` ("name" or "folder/name"), and checks that files can be created there.
  // InvalidArgument: the prefix has no name. FailedPrecondition: no such folder, or not writable.
  static absl::StatusOr<DumpFolder> Open(absl::string_view prefix);

  // Writes <prefix>.<pid>.<seq>.<kind><n>.heap, a final one without <n>, mode 0600. Advances `sequence` only on
  // success. Returns the path.
  absl::StatusOr<std::string> Write(pid_t pid, heaptap_dump_kind kind, DumpSequence& sequence,
                                    absl::string_view contents) const;
  // The same with `name`, which a process chose, instead of the prefix's name. Characters that could lead to another
  // folder, or hide the file, are replaced.
  absl::StatusOr<std::string> Write(absl::string_view name, pid_t pid, heaptap_dump_kind kind, DumpSequence& sequence,
                                    absl::string_view contents) const;
  // A copy of the folder's descriptor, which the caller closes; negative on error, with errno.
  int Duplicate() const;

 private:
  DumpFolder(base::FileDescriptor folder, std::string parent, std::string name)
      : folder_(std::move(folder)), parent_(std::move(parent)), name_(std::move(name)) {}
  absl::StatusOr<std::string> WriteAs(const std::string& prefix, pid_t pid, heaptap_dump_kind kind,
                                      DumpSequence& sequence, absl::string_view contents) const;
  base::FileDescriptor folder_;
  std::string parent_;  // "" or "folder/", for messages
  std::string name_;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_RECORDING_DUMP_FOLDER_H_
