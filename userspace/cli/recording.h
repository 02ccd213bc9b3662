// SPDX-License-Identifier: Apache-2.0
//
// What `run`, `attach` and `daemon` share: options, and the wait for signals and events during a recording.
#ifndef HEAPTAP_USERSPACE_CLI_RECORDING_H_
#define HEAPTAP_USERSPACE_CLI_RECORDING_H_

#include <signal.h>
#include <sys/signalfd.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "userspace/base/clock.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/cli/words/command_line.h"
#include "userspace/recording/recorder.h"

namespace heaptap::cli {

// The options as they were typed.
struct RecordingFlags {
  std::string prefix;
  std::string report;  // when the short form is shown at the end
  std::string format;
  int lg_sample = -1;
  bool exact = false;
  bool reports_each = false;
  int high_water_percent = 0;
  std::optional<uint64_t> interval;
  std::optional<uint64_t> unwind_memory;
  bool books = false;
  std::vector<std::string> map_sizes;
};

// Adds the options of every recording.
void AddSamplingOptions(Command command, RecordingFlags& flags);
// Adds the options of every recording, and -o and --report, for a recording of given processes.
void AddRecordingOptions(Command command, RecordingFlags& flags);

// InvalidArgument: invalid values.
absl::StatusOr<recording::RecorderOptions> MakeRecorderOptions(const RecordingFlags& flags);

// The error of a recording that could not start: PermissionDenied instead of FailedPrecondition if this user may not
// record. Such a user may also be unable to write to the folder, and another folder would not help.
absl::Status RightsFirst(const absl::Status& status, absl::string_view command);

// Receives signals through a descriptor. While this object lives, the signals are blocked, and SIGPIPE and SIGXFSZ are
// ignored, so that a write returns an error instead. SIGCHLD has its default action, so that children can be waited
// for. A child must call Restore before it execs.
class Signals {
 public:
  explicit Signals(std::initializer_list<int> numbers);
  ~Signals();
  // Not OK: there is no descriptor, so the signals would never be taken.
  const absl::Status& status() const { return status_; }
  int fd() const { return fd_.get(); }
  std::vector<signalfd_siginfo> Take();
  void Restore() const;

 private:
  sigset_t before_;
  std::vector<std::pair<int, sighandler_t>> dispositions_before_;
  base::FileDescriptor fd_;
  absl::Status status_;
};

// Raises this process's priority while the object lives: a late collector loses stacks, and it needs little CPU time. A
// child must call Restore before it execs.
class Priority {
 public:
  Priority();
  ~Priority() { Restore(); }
  Priority(const Priority&) = delete;
  Priority& operator=(const Priority&) = delete;
  void Restore() const;

 private:
  int before_;
};

bool IsReadable(int fd);

// Waits until a descriptor is readable, at most until `end`.
void WaitFor(const std::vector<int>& fds, base::Instant end);

// Waits until the recorder has work or one of `others` is readable, at most `limit`.
void WaitForWork(const recording::Recorder& recorder, const std::vector<int>& others, absl::Duration limit);

// Like WaitForWork, for at most kPumpInterval; then pumps.
void WaitAndPump(recording::Recorder& recorder, const std::vector<int>& fds, absl::Duration limit);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_RECORDING_H_
