// SPDX-License-Identifier: Apache-2.0
//
// Which files hold a sampled allocator, and where: read by workers, and remembered by version. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_ATTACH_ALLOCATOR_FILES_H_
#define HEAPTAP_USERSPACE_ATTACH_ALLOCATOR_FILES_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/base/clock.h"
#include "userspace/base/retries.h"
#include "userspace/crews/errands.h"
#include "userspace/spaces/seen_file.h"
#include "userspace/worker/file_version.h"
#include "userspace/worker/reader_jobs.h"

namespace heaptap::recording {

class AllocatorFiles {
 public:
  // InvalidArgument: unusable notes. Other codes: it could not be read now. A file whose reader was late or died is
  // read again after a pause, and after a longer one each time (base/retries.h).
  using Allocator = absl::StatusOr<worker::AllocatorOfFile>;

  // `errands` must outlive this object.
  explicit AllocatorFiles(worker::Errands& errands) : errands_(errands) {}

  // Null: not known. Valid until the next call of errands.HandleDone.
  const Allocator* Find(const worker::FileVersion& version) const;

  // Has the file read, if that is not under way. `done` is called once it is read. If the process that maps the file no
  // longer does, the file is read for the next one that wants it.
  using Done = std::function<void(const Allocator&)>;
  void Read(const SeenFile& file, Done done);

  // Forgets files that could not be read and are due again, and returns them.
  std::vector<worker::FileVersion> ForgetFailures(base::Instant now);

 private:
  void HandleRead(const worker::FileVersion& version, const worker::Answer& answer);

  worker::Errands& errands_;
  std::map<worker::FileVersion, Allocator> known_;
  base::Retries<worker::FileVersion> retries_{base::RetryPauses{}};
  struct Reading {
    uid_t payer;
    worker::Errands::JobId job;
    Done done;
    // Others who want the same meanwhile. Their processes may still map the file when the first one no longer does.
    std::vector<std::pair<SeenFile, Done>> others;
  };
  std::map<worker::FileVersion, Reading> being_read_;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_ATTACH_ALLOCATOR_FILES_H_
