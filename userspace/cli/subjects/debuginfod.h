// SPDX-License-Identifier: Apache-2.0
//
// Fetches files by build-id from the servers in DEBUGINFOD_URLS, with the rights of the user who runs the command, into
// the cache that all clients of debuginfod share (debuginfod(8), debuginfod_find_debuginfo(3)).
//
// libdebuginfod is loaded at run time, so that only this option needs it. The files that it fetches may be hostile.
#ifndef HEAPTAP_USERSPACE_CLI_SUBJECTS_DEBUGINFOD_H_
#define HEAPTAP_USERSPACE_CLI_SUBJECTS_DEBUGINFOD_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/base/file_descriptor.h"

namespace heaptap::cli {

// Not thread-safe.
class Debuginfod {
 public:
  struct Options {
    // The longest download of one file: 1 GB of debug information at 4 MB/s. The library remembers for some minutes
    // that the file was late.
    absl::Duration time = absl::Minutes(5);
    // Called from time to time during a download: what is fetched, and how much of it.
    std::function<void(const std::string&)> progress = {};
  };
  // After this many files that could not be fetched, the servers are left alone.
  static constexpr size_t kMostProblems = 3;

  // Whether Open would work. InvalidArgument: DEBUGINFOD_URLS is not set. FailedPrecondition: there is no library, or
  // it is too old.
  static absl::Status Check();
  static absl::StatusOr<std::unique_ptr<Debuginfod>> Open(Options options);
  virtual ~Debuginfod() = default;

  // The debug file or the program with this build-id (bytes); `name`: the name of the file that it is for, for people.
  // Invalid: the servers do not have it, or could not be asked.
  virtual base::FileDescriptor FindDebugFile(const std::string& build_id, const std::string& name) = 0;
  virtual base::FileDescriptor FindProgram(const std::string& build_id, const std::string& name) = 0;
  // A line for each file that could not be asked for.
  virtual const std::vector<std::string>& problems() const = 0;
};

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_SUBJECTS_DEBUGINFOD_H_
