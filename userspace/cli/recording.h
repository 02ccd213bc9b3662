// SPDX-License-Identifier: Apache-2.0
//
// What `run`, `attach` and `daemon` share: options, and waiting for signals and events while a recording goes on.
#ifndef HEAPTAP_USERSPACE_CLI_RECORDING_H_
#define HEAPTAP_USERSPACE_CLI_RECORDING_H_

#include <signal.h>
#include <sys/signalfd.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/cli/command_line.h"
#include "userspace/elf/file_descriptor.h"
#include "userspace/service/recorder.h"

namespace heaptap::cli {

// The options as they were typed.
struct RecordingFlags {
  std::string prefix;
  std::string format;
  int lg_sample = -1;
  bool exact = false;
  int high_water_percent = 0;
  std::optional<uint64_t> interval;
  std::optional<uint64_t> unwind_memory;
  bool books = false;
  std::vector<std::string> map_sizes;
};

// Those of every recording, and for one that is given its processes also where dumps go.
void AddSamplingOptions(Command command, RecordingFlags& flags);
void AddRecordingOptions(Command command, RecordingFlags& flags);

// InvalidArgument: nonsense.
absl::StatusOr<service::RecorderOptions> MakeRecorderOptions(const RecordingFlags& flags);

// Signals as something to wait for. While it lives they are blocked, and those that writing can raise are ignored (the
// write then says what is wrong); children can be waited for, whatever was inherited. A child must call Restore before
// it execs.
class Signals {
 public:
  explicit Signals(std::initializer_list<int> numbers);
  ~Signals();
  int fd() const { return fd_.get(); }
  std::vector<signalfd_siginfo> Take();
  void Restore() const;

 private:
  sigset_t before_;
  std::vector<std::pair<int, sighandler_t>> dispositions_before_;
  elf::FileDescriptor fd_;
};

// While it lives this process comes before others when processors are scarce: what it is late for costs stacks, and it
// does little. A child must call Restore before it execs.
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

// Waits until a descriptor is readable, but no longer than `limit`.
void WaitFor(const std::vector<int>& fds, absl::Duration limit);

// Waits until a descriptor is readable, but no longer than `limit` and than the recorder bears, and pumps.
void WaitAndPump(service::Recorder& recorder, const std::vector<int>& fds, absl::Duration limit);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_RECORDING_H_
