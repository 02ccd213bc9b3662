// SPDX-License-Identifier: Apache-2.0
//
// A system-wide recording: takes over the books of an earlier recorder, takes in the processes that enter, gives each
// its policy by the rules, and does the work of each second. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_RECORDING_EVERYONE_H_
#define HEAPTAP_USERSPACE_RECORDING_EVERYONE_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "bpf/events.h"
#include "userspace/base/clock.h"
#include "userspace/base/retries.h"
#include "userspace/bpf/books.h"
#include "userspace/bpf/mapping_events.h"
#include "userspace/elf/mappings.h"
#include "userspace/process/control_groups.h"
#include "userspace/recording/address_spaces.h"
#include "userspace/recording/allocators.h"
#include "userspace/recording/background.h"
#include "userspace/recording/controls.h"
#include "userspace/recording/dumps.h"
#include "userspace/recording/endings.h"
#include "userspace/recording/newcomers.h"
#include "userspace/recording/rates.h"
#include "userspace/recording/readings.h"
#include "userspace/recording/recorder_options.h"
#include "userspace/recording/requests.h"
#include "userspace/recording/target.h"
#include "userspace/recording/target_state.h"
#include "userspace/recording/target_table.h"
#include "userspace/recording/unwinding.h"
#include "userspace/recording/upkeep.h"
#include "userspace/worker/errands.h"
#include "userspace/worker/hands.h"
#include "userspace/worker/looks.h"

namespace heaptap::recording {

class Everyone {
 public:
  // What it needs of others, which must outlive this object.
  struct Means {
    bpf::Books& books;
    bpf::MappingEvents& mapping_events;
    process::ControlGroups& groups;
    worker::Looks& looks;
    worker::Looks& orders;
    worker::Errands& errands;
    TargetTable& targets;
    AddressSpaces& spaces;
    Controls& controls;
    Readings& readings;
    Allocators& allocators;
    Unwinding& unwinding;
    Dumps& dumps;
    Requests& requests;
    Endings& endings;
    Background& background;
  };
  // What only the recorder can do.
  struct Calls {
    // Recorder::RecordLater.
    std::function<void(pid_t, std::function<void(const absl::Status&)> done)> record_running;
    std::function<void()> pump;
  };
  // `options` must outlive this object; SetRules changes them.
  Everyone(const Means& means, RecorderOptions& options, Calls calls);

  // States are saved there for the next recorder. They must outlive this object.
  void UseStates(TargetStates* states) { states_ = states; }
  // Restricts the recording to its control groups, if it has some, and begins it: any process may enter.
  absl::Status Restrict();
  // Tells the processes that start from now on their rate (Allocators::TellRate).
  void TellRate();
  // Takes over what an earlier recorder has left in the kernel.
  void TakeOverBooks();
  // Records the running processes that have a sampled allocator; if they cannot be listed now, with the next Tick.
  void RecordRunningProcesses();

  // A process has hit a probe for the first time.
  void HandleEnter(const heaptap_event& event);
  // The process has fired heaptap:start.
  void ForgetNewcomer(pid_t pid) { newcomers_.Forget(pid); }
  // As Readings::OnRead.
  void HandleRead(Target& target, const process::Facts* facts);
  // Begins to look at the processes that wait for it. To be called after each batch of events.
  void InspectNewcomers();
  // Looks at the processes that are running when the recording begins, for a bounded time, and writes this collector
  // into their control blocks.
  void InspectFirst();
  // No process waits for that, except those whose looks have failed again and again.
  bool IsSettled() const { return newcomers_.empty() && ignored_.empty() && !shall_list_again_ && !HasFailedOnce(); }
  // For a recorder that goes on with this recording.
  void SaveAllStates();
  // Looks at all targets that wait for it, before the recording ends: each has a control block to be restored.
  void InspectAll();
  // The process is to be looked at (Allocators::Options::look_again).
  void LookAgain(pid_t pid) { newcomers_.Add(pid); }
  // A file has just got its probes (Allocators::Options::on_attached).
  void RecordMapping(const elf::Mapping& file);
  // Sets the policy by the rules, configures the kernel, and then calls `then`: later, if the rules need facts that
  // must be read. A process that is not to be recorded stays a target until the next InspectNewcomers.
  using Then = std::function<void(Target&)>;
  void ApplyPolicy(
      Target& target, Then then = [](Target&) {});
  // The same at once, by facts that have been read.
  void SetPolicy(Target& target, const process::Facts& facts);
  // Applies new settings to all processes.
  void SetRules(Rules rules, const Policy& defaults, const Retention& retention, double budget);

  // To be called every second: rates, budget, scheduled dumps, age of dumps.
  void Tick(base::Instant now);
  // To be called often: goes on with what Tick has begun (Upkeep).
  void FoldSome() { upkeep_.FoldSome(); }
  bool IsFolding() const { return upkeep_.IsFolding(); }
  bool failed() const { return failed_; }

 private:
  // The rate of a process until the rules are applied to it: the least that one of them or the default sets. Too many
  // samples at the start of a process that the rule does not concern have the right weights; too few would break the
  // promise of the rule.
  std::optional<uint32_t> FirstRate() const;
  // What the kernel gives to processes until their start event is handled and the rules are applied.
  absl::Status SetDefaults();
  absl::Status UseGroups();
  // Follows control groups that were made again.
  void RefreshGroups();
  // Records a running process if it has a sampled allocator. If that fails, perhaps for want of descriptors or memory,
  // the process is looked at again, with growing pauses.
  void TryToRecord(pid_t pid);
  void HandleTried(pid_t pid, const absl::Status& status);
  bool HasFailedOnce() const;
  // Has the mappings and the control block read of a process that was running before it entered; its rules are found
  // before it gets a rate. Changes nothing if the process is gone, has no attached allocator (yet), or if its files are
  // being read: then LookAgain follows.
  void Inspect(const Target& target);
  // Whether no process waits to be looked at. Handles what has been read.
  bool HasInspected();
  void HandleInspected(uint64_t process_id, absl::StatusOr<Inspection> inspection);
  void Configure(Target& target, const process::Facts& facts);
  // Records a running process, or completes what is known of a recorded one.
  void LookAt(pid_t pid);
  // Applies the current rules to the processes that an earlier rule ignored.
  void RecordIgnored();
  // Looks at all processes again after mapping events were lost.
  void RepairSpaces(base::Instant now);
  void Fail(const absl::Status& status);

  bpf::Books& books_;
  worker::Looks& looks_;
  worker::Looks& orders_;
  worker::Errands& errands_;
  TargetTable& targets_;
  AddressSpaces& spaces_;
  Controls& controls_;
  Allocators& allocators_;
  Unwinding& unwinding_;
  Dumps& dumps_;
  Requests& requests_;
  Endings& endings_;
  bpf::MappingEvents& mapping_events_;
  process::ControlGroups& groups_;
  RecorderOptions& options_;
  const std::function<void(pid_t, std::function<void(const absl::Status&)>)> record_running_;
  const std::function<void()> pump_;
  Readings& readings_;
  Rates rates_;
  Upkeep upkeep_;
  TargetStates* states_ = nullptr;
  Newcomers newcomers_;         // entered, but heaptap:start not seen; or their files have just been read or attached
  std::set<uint64_t> ignored_;  // process ids to close because a rule ignores a living process
  std::map<uint64_t, std::vector<Then>> without_facts_;  // process ids of targets whose rule is not known yet
  bool shall_list_again_ = false;
  uint64_t mappings_lost_ = 0;  // as of the last RepairSpaces
  base::Instant repaired_ = base::Instant::InfinitePast();
  std::set<pid_t> failed_looks_;  // processes that will be looked at again
  base::Retries<pid_t> looks_again_{{.first = absl::Seconds(1), .most = absl::Minutes(5)}};
  bool failed_ = false;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_RECORDING_EVERYONE_H_
