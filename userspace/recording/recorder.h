// SPDX-License-Identifier: Apache-2.0
//
// One recording: the books in the kernel, the recorded processes (target.h), and their dumps.
//
// A recording of given processes (RecordChild, RecordRunning) knows them from the start. A system-wide recording takes
// in each process that uses a sampled allocator, from its first allocation: probes are attached for the whole machine,
// and a process enters when it hits one. A system-wide recording can stay in the kernel when the recorder ends or is
// killed; the next recorder takes it over.
//
// When a process exits, its final dump is written if its policy says so. An exec drops the books, since the memory is
// gone.
//
// Not thread safe. The owner polls fds() and mapping_fds(), or waits for kPumpInterval at most, and calls Pump.
#ifndef HEAPTAP_USERSPACE_RECORDING_RECORDER_H_
#define HEAPTAP_USERSPACE_RECORDING_RECORDER_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "heaptap/contract.h"
#include "userspace/attach/allocators.h"
#include "userspace/base/background.h"
#include "userspace/base/clock.h"
#include "userspace/bpf/books.h"
#include "userspace/bpf/mapping_events.h"
#include "userspace/bpf/pins.h"
#include "userspace/crews/errands.h"
#include "userspace/crews/hands.h"
#include "userspace/crews/looks.h"
#include "userspace/dumps/dump_folder.h"
#include "userspace/dumps/dumps.h"
#include "userspace/dumps/recorder_options.h"
#include "userspace/dumps/requests.h"
#include "userspace/process/control_groups.h"
#include "userspace/profile/figures.h"
#include "userspace/recording/endings.h"
#include "userspace/recording/event_loop.h"
#include "userspace/recording/everyone.h"
#include "userspace/recording/queries.h"
#include "userspace/recording/surveys.h"
#include "userspace/recording/threads.h"
#include "userspace/spaces/address_spaces.h"
#include "userspace/tables/unwinding.h"
#include "userspace/targets/area_gifts.h"
#include "userspace/targets/controls.h"
#include "userspace/targets/readings.h"
#include "userspace/targets/target.h"
#include "userspace/targets/target_state.h"
#include "userspace/targets/target_table.h"

namespace heaptap::recording {

// What a recording needs of the kernel.
struct Kernel {
  std::optional<bpf::Pins> pins = {};  // of the books
  std::unique_ptr<bpf::Books> books;
  std::unique_ptr<bpf::MappingEvents> mapping_events;
  process::ControlGroups groups = {};  // a system-wide recording is restricted to them
};

class Recorder {
 public:
  // The longest time between two calls of Pump: dumps and processes may wait for time in a user's account.
  static constexpr absl::Duration kPumpInterval = absl::Milliseconds(250);
  // How late a newly mapped library may get its probes; its samples before that are missed.
  static constexpr absl::Duration kMappingInterval = absl::Milliseconds(20);

  // Loads the programs and opens the folder for dumps. Records nothing yet, unless it is system-wide.
  static absl::StatusOr<std::unique_ptr<Recorder>> Start(const RecorderOptions& options);
  // The same with the caller's kernel, for tests. A `pin_folder` then only says that the books outlive the recorder.
  static absl::StatusOr<std::unique_ptr<Recorder>> Start(const RecorderOptions& options, Kernel kernel);

  // Records a child of this process that will exec.
  absl::Status RecordChild(pid_t pid);
  // Begins to read the unwind tables of the child program's files.
  void ReadAhead(const std::vector<std::string>& paths);
  // Attaches to a file that the child's program will map; waits for that.
  absl::StatusOr<bool> AttachFile(const std::string& path);
  // Attaches to the files that are at these paths now: SystemWide::libraries and preloaded. Files that were there
  // before stay attached. The result is the error of the first of `libraries` that fails.
  absl::Status AttachLibraries(const SystemWide& system_wide);
  // Records a running process. NotFound: no such process, or no sampled allocator in it.
  absl::Status RecordRunning(pid_t pid);
  // Like RecordRunning, but without waiting, for a system-wide recording. `done` is called once. Its status is OK also
  // if files of the process are being read, and another look follows.
  using Done = std::function<void(const absl::Status&)>;
  void RecordLater(pid_t pid, Done done);

  // Readable when something must be handled at once.
  std::vector<int> fds() const { return loop_.fds(); }
  // Readable when a process has mapped a file. A busy machine has thousands of these events each second, so they wait
  // until kMappingInterval after the last Pump.
  std::vector<int> mapping_fds() const { return mapping_events_->fds(); }
  base::Instant pumped() const { return loop_.pumped(); }
  // Handles everything that has happened since the last call.
  void Pump() { loop_.Pump(); }
  // Whether the last Pump has left work for the next one, which is to follow at once.
  bool HasMore() const;

  // Whether the last Pump has left nothing to do: no newcomer, table, dump or closed book waits for time, and nothing
  // runs in the background. Another Pump may be needed to get there.
  bool IsSettled() const;

  // Writes a dump of each target, in the background if the recording is system-wide.
  void DumpAll(heaptap_dump_kind kind);
  // Pumps until nothing runs in the background, for some seconds at most.
  void FinishBackground();
  // Saves what a recorder that goes on with this recording needs. To be called last.
  void Leave();
  // A process that goes on without being recorded.
  struct Survivor {
    pid_t pid = 0;
    std::string name = {};  // printable
  };
  // Ends the recording: writes last dumps of the targets that still live, restores their control blocks, and returns
  // these targets. Some of them may be about to end.
  std::vector<Survivor> Finish();
  // Ends a system-wide recording without dumps: removes it from the kernel and restores control blocks.
  void End();

  bool IsRecorded(pid_t pid) const { return !targets_.WithPid(pid).empty(); }
  // Whether a dump or another task has failed (its error is already printed).
  bool failed() const {
    return failed_ || loop_.failed() || dumps_.failed() || requests_.failed() || endings_.failed() ||
           (everyone_.has_value() && everyone_->failed());
  }
  // Whether another recorder began the recording.
  bool took_over() const { return books_->adopted(); }

  const Dumps& dumps() const { return dumps_; }
  const Endings& endings() const { return endings_; }

  // The functions below are for a system-wide recording. Clients' calls are those of collector.h.
  //
  // The owner calls Everyone::Tick, and SetRules for new settings.
  Everyone& everyone() { return *everyone_; }
  Queries& queries() { return queries_; }
  // For reading in other threads.
  const bpf::Entries& entries() const { return books_->entries(); }
  Surveys& surveys() { return surveys_; }
  Readings& readings() { return readings_; }
  profile::CollectorFigures Figures(std::vector<profile::ProcessSummary> processes) {
    return queries_.Figures(std::move(processes), loop_.events_counted());
  }

 private:
  Recorder(const RecorderOptions& options, DumpFolder folder, Kernel kernel);
  static absl::StatusOr<std::unique_ptr<Recorder>> Begin(const RecorderOptions& options, DumpFolder folder,
                                                         Kernel kernel);
  absl::Status StartSystemWide();
  // Records a process that was looked at.
  void Record(pid_t pid, std::shared_ptr<const base::FileDescriptor> pidfd, Inspection inspection, Done done);
  // Goes on with Record when the control block, if there is one, has been read.
  absl::Status RecordWith(pid_t pid, int pidfd, Inspection inspection, const std::optional<Controls::Found>& found);
  // Takes over the targets that mapped an allocator before it had its probes: a copy of the library other than the
  // command's.
  void TakeLate(const elf::Mapping& file);
  // Stops recording every target and restores its control block.
  void Abandon();

  RecorderOptions options_;
  std::optional<bpf::Pins> pins_;
  std::unique_ptr<bpf::Books> books_;
  std::unique_ptr<bpf::MappingEvents> mapping_events_;
  process::ControlGroups groups_;
  worker::Errands errands_;
  worker::Looks looks_;   // at processes and files, to find out what is to be recorded
  worker::Looks orders_;  // about processes that are recorded: control blocks, facts, names
  AddressSpaces spaces_;
  TargetTable targets_;
  Controls controls_;
  AreaGifts gifts_;
  Readings readings_;
  Allocators allocators_;
  Unwinding unwinding_;
  Dumps dumps_;
  Requests requests_;
  Queries queries_;
  Surveys surveys_;
  Endings endings_;
  EventLoop loop_;
  bool failed_ = false;

  // For a system-wide recording.
  std::optional<TargetStates> states_;
  std::optional<Everyone> everyone_;
  Threads threads_;  // they end before the objects that they use
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_RECORDING_RECORDER_H_
