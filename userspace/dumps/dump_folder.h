// SPDX-License-Identifier: Apache-2.0
//
// The dumps that the collector writes on its own: with jemalloc's names, complete or not at all.
//
// A dump is written to an unnamed file in the same folder and gets its name when it is complete. An existing file is
// never touched: the dump takes the next sequence number. The folder is opened once, so that a later change of paths
// cannot redirect dumps. Fill is thread-safe; the other functions are not.
#ifndef HEAPTAP_USERSPACE_DUMPS_DUMP_FOLDER_H_
#define HEAPTAP_USERSPACE_DUMPS_DUMP_FOLDER_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "heaptap/contract.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/mutex.h"
#include "userspace/targets/dump_sequence.h"

namespace heaptap::recording {

// A complete dump that has no name yet. Without a name, it vanishes with this object.
class DumpFile {
 public:
  DumpFile(const DumpFile&) = delete;
  DumpFile& operator=(const DumpFile&) = delete;
  ~DumpFile();

  // Bytes.
  size_t size() const { return size_; }

 private:
  friend class DumpFolder;
  DumpFile(std::shared_ptr<const base::FileDescriptor> folder, size_t size) : folder_(std::move(folder)), size_(size) {}

  std::shared_ptr<const base::FileDescriptor> folder_;
  size_t size_;
  int error_ = 0;  // why it could not be written (errno); 0: it is complete
  base::FileDescriptor file_;
  // Its temporary name, if the file system has no unnamed files.
  std::string temporary_;
};

class DumpFolder {
 public:
  // Opens the folder of `prefix` ("name" or "folder/name"), and checks that files can be created there. `option`: the
  // option that chooses another folder. InvalidArgument: the prefix has no name. FailedPrecondition: no such folder, or
  // not writable.
  static absl::StatusOr<DumpFolder> Open(absl::string_view prefix, absl::string_view option = "-o");

  // Writes a file without a name, and waits for the disk. Name gives it one, and reports an error of the writing.
  std::shared_ptr<const DumpFile> Fill(absl::string_view contents) const;
  // Names a dump <prefix>.<pid>.<seq>.<kind><n>.heap, a final one without <n>, mode 0600. Advances `sequence` only on
  // success. Returns the path.
  absl::StatusOr<std::string> Name(const DumpFile& dump, pid_t pid, heaptap_dump_kind kind,
                                   DumpSequence& sequence) const;
  // Like Name above, with `name`, which a process chose, instead of the prefix's name. Characters that could lead to
  // another folder, or hide the file, are replaced.
  absl::StatusOr<std::string> Name(const DumpFile& dump, absl::string_view name, pid_t pid, heaptap_dump_kind kind,
                                   DumpSequence& sequence) const;
  // Opens the path again if it leads to another folder now, because the first one was moved or removed. The new folder
  // must have the same owner, and must not be writable for more users. Returns whether there is a new folder.
  bool Renew();
  // A copy of the folder's descriptor, which the caller closes; negative on error, with errno.
  int Duplicate() const;

 private:
  DumpFolder(base::FileDescriptor folder, std::string parent, std::string name)
      : folder_(std::make_unique<Folder>(std::move(folder))), parent_(std::move(parent)), name_(std::move(name)) {}
  absl::StatusOr<std::string> NameAs(const DumpFile& dump, const std::string& prefix, pid_t pid, heaptap_dump_kind kind,
                                     DumpSequence& sequence) const;
  std::string Path() const { return parent_.empty() ? "." : parent_; }
  // Fill may be under way in another thread.
  class Folder {
   public:
    explicit Folder(base::FileDescriptor fd) { Set(std::move(fd)); }
    std::shared_ptr<const base::FileDescriptor> Get() const {
      base::MutexLock lock(&mutex_);
      return fd_;
    }
    void Set(base::FileDescriptor fd) {
      base::MutexLock lock(&mutex_);
      fd_ = std::make_shared<base::FileDescriptor>(std::move(fd));
    }

   private:
    mutable base::Mutex mutex_;
    std::shared_ptr<const base::FileDescriptor> fd_ ABSL_GUARDED_BY(mutex_);
  };
  std::unique_ptr<Folder> folder_;
  std::string parent_;  // "" or "folder/", for messages
  std::string name_;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_DUMPS_DUMP_FOLDER_H_
