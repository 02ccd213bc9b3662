// SPDX-License-Identifier: Apache-2.0
//
// How many dumps a folder keeps: the oldest go when there are too many.
//
// A DUMP is a regular file of this user's with a name as DumpFolder gives it. Nothing else is counted, followed or
// removed. Age is the time since the last change of the contents; the newest dump stays whatever the bounds are.
#ifndef HEAPTAP_USERSPACE_SERVICE_RETENTION_H_
#define HEAPTAP_USERSPACE_SERVICE_RETENTION_H_

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "userspace/elf/file_descriptor.h"

namespace heaptap::service {

// All that are given must hold.
struct Retention {
  absl::Duration max_age = absl::ZeroDuration();  // 0: no bound
  uint64_t max_files = 0;                         // 0: no bound
  uint64_t max_bytes = 0;                         // of contents; 0: no bound
};

// Whether DumpFolder gives names like this: <name>.<pid>.<seq>.<kind><n>.heap.
bool IsDumpName(absl::string_view name);

// Cheap after each dump: the folder is read once for every kMostOldest dumps that are removed, and again when bounds
// are passed and the last reading is more than kTrusted ago, as others may have removed dumps. Not thread safe.
class DumpPruner {
 public:
  static constexpr size_t kMostOldest = 1024;
  static constexpr absl::Duration kTrusted = absl::Seconds(10);
  // For so long nothing is tried after a failure.
  static constexpr absl::Duration kPatience = absl::Minutes(1);

  // `folder`: an open directory.
  DumpPruner(elf::FileDescriptor folder, const Retention& retention)
      : folder_(std::move(folder)), retention_(retention) {}

  void SetRetention(const Retention& retention) { retention_ = retention; }

  // A dump was written to the folder: it is the newest now. `path`: its last part counts.
  void Added(absl::string_view path, uint64_t bytes);

  struct Removed {
    uint64_t files = 0;
    uint64_t bytes = 0;
  };
  // Removes the oldest dumps until all bounds hold. To be called after each dump, and from time to time for the sake of
  // their age. An error says how far it came.
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
  // Whether it is gone by our hand.
  absl::StatusOr<bool> Remove(const Dump& dump) const;
  absl::StatusOr<Removed> RemoveOldest(absl::Time now);

  elf::FileDescriptor folder_;
  Retention retention_;
  bool is_read_ = false;     // else what follows means nothing
  absl::Time read_ = {};     // when
  uint64_t files_ = 0;       // all dumps
  uint64_t bytes_ = 0;       // theirs
  std::deque<Dump> oldest_;  // of those that may go; the oldest first
  std::string newest_;       // the last that was added
  absl::Time failed_ = absl::InfinitePast();
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_RETENTION_H_
