// SPDX-License-Identifier: Apache-2.0
//
// Limits the dumps in a folder: the oldest are removed first.
//
// A DUMP is a regular file of this user with a name in DumpFolder's form. Other files are not counted, followed or
// removed. Age is the time since the last change of the contents. The newest dump always stays.
#ifndef HEAPTAP_USERSPACE_DUMPS_RETENTION_H_
#define HEAPTAP_USERSPACE_DUMPS_RETENTION_H_

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/repeated_task.h"

namespace heaptap::recording {

// All given bounds must hold.
struct Retention {
  absl::Duration max_age = absl::ZeroDuration();  // 0: no bound
  uint64_t max_files = 0;                         // 0: no bound
  uint64_t max_bytes = 0;                         // of contents; 0: no bound
};

// Whether a name has DumpFolder's form: <name>.<pid>.<seq>.<kind><n>.heap.
bool IsDumpName(absl::string_view name);

// Cheap after each dump: the folder is read once per kMaxOldest removed dumps. It is also read again when a bound is
// exceeded and the last reading is older than kTrusted, since others may have removed dumps. Not thread safe.
class DumpPruner {
 public:
  static constexpr size_t kMaxOldest = 1024;
  static constexpr absl::Duration kTrusted = absl::Seconds(10);
  // The pause after a failure.
  static constexpr absl::Duration kPatience = absl::Minutes(1);

  // `folder`: an open directory.
  DumpPruner(base::FileDescriptor folder, const Retention& retention)
      : folder_(std::move(folder)), retention_(retention) {}

  const Retention& retention() const { return retention_; }
  void SetRetention(const Retention& retention) { retention_ = retention; }

  // Notes a dump that was written to the folder; it is now the newest. Only the file name of `path` matters.
  void Added(absl::string_view path, uint64_t bytes);

  struct Removed {
    uint64_t files = 0;
    uint64_t bytes = 0;
  };
  // Removes the oldest dumps until all bounds hold. Call it after each dump, and from time to time because of max_age.
  // An error says how many dumps were removed before it. This object prints the error (RepeatedTask).
  absl::StatusOr<Removed> Prune(absl::Time now);

 private:
  struct Dump {
    absl::Time written;
    uint64_t bytes;
    std::string name;
    bool operator<(const Dump& other) const;
  };
  bool HasBounds() const;
  bool AreCountAndBytesPassed() const;
  bool IsTooOld(const Dump& dump, absl::Time now) const;
  bool MustRead(absl::Time now) const;
  absl::Status ReadFolder(absl::Time now);
  // Whether this call removed the dump.
  absl::StatusOr<bool> Remove(const Dump& dump) const;
  absl::StatusOr<Removed> RemoveOldest(absl::Time now);
  absl::StatusOr<Removed> RemoveAll(absl::Time now);

  base::FileDescriptor folder_;
  Retention retention_;
  bool is_read_ = false;     // whether the following members are valid
  absl::Time read_ = {};     // time of the last reading
  uint64_t files_ = 0;       // number of dumps
  uint64_t bytes_ = 0;       // total size of the dumps
  std::deque<Dump> oldest_;  // removable dumps, the oldest first
  std::string newest_;       // the newest dump
  absl::Time failed_ = absl::InfinitePast();
  base::RepeatedTask pruning_{{.name = "dumps",
                               .failure = "cannot remove old dumps",
                               .success = "old dumps are removed",
                               .advice = "until it works again, the folder grows beyond its bounds"}};
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_DUMPS_RETENTION_H_
