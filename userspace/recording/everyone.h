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
#include "userspace/attach/allocators.h"
#include "userspace/base/background.h"
#include "userspace/base/clock.h"
#include "userspace/base/retries.h"
#include "userspace/base/thread_checker.h"
#include "userspace/bpf/books.h"
#include "userspace/bpf/mapping_events.h"
#include "userspace/crews/errands.h"
#include "userspace/crews/hands.h"
#include "userspace/crews/looks.h"
#include "userspace/dumps/dumps.h"
#include "userspace/dumps/recorder_options.h"
#include "userspace/dumps/requests.h"
#include "userspace/elf/mappings.h"
#include "userspace/process/control_groups.h"
#include "userspace/recording/endings.h"
#include "userspace/recording/queries.h"
#include "userspace/recording/system_wide_part.h"
#include "userspace/recording/upkeep.h"
#include "userspace/spaces/address_spaces.h"
#include "userspace/tables/unwinding.h"
#include "userspace/targets/controls.h"
#include "userspace/targets/rates.h"
#include "userspace/targets/readings.h"
#include "userspace/targets/target.h"
#include "userspace/targets/target_state.h"
#include "userspace/targets/target_table.h"
#include "userspace/targets/user_queues.h"

namespace heaptap::recording {

class Everyone final : public SystemWidePart {
 public:
  // The objects that this one uses. They must outlive it.
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
    Queries& queries;
    Endings& endings;
    base::Background& background;
  };
  // Actions that only the recorder can take.
  struct Calls {
    // Recorder::RecordLater.
    std::function<void(pid_t, std::function<void(const absl::Status&)> done)> record_running;
    std::function<void()> pump;
  };
  // `options` must outlive this object; SetRules changes them.
  Everyone(const Means& means, RecorderOptions& options, Calls calls);

  // The states of targets are saved in `states` for the next recorder. `states` must outlive this object.
  void UseStates(TargetStates* states) { states_ = states; }
  // Restricts the recording to its control groups, if it has some, and begins it: from then on any process may enter.
  absl::Status Restrict();
  // Tells the processes that start from now on their rate (Allocators::TellRate).
  void TellRate();
  // Takes over what an earlier recorder has left in the kernel.
  void TakeOverBooks();
  // Records the running processes that have a sampled allocator; if they cannot be listed now, the next Tick records
  // them.
  void RecordRunningProcesses();

  void BeginBatch(base::Instant now) override;
  // Begins to look at the processes that wait for it.
  void EndBatch() override;
  void HandleEnter(const heaptap_event& event) override;
  void HandleStart(Target& target, const std::function<void(Target&)>& take) override;
  // To be called as Readings::OnRead.
  void HandleRead(Target& target, const process::Facts* facts);
  // Looks at the processes that are running when the recording begins, for a bounded time, and writes this collector
  // into their control blocks.
  void InspectFirst();
  // Whether no process waits for a look, except processes whose looks have failed again and again.
  bool IsSettled() const { return newcomers_.empty() && to_close_.empty() && !shall_list_again_ && !HasFailedOnce(); }
  // Saves the states of all targets for a recorder that goes on with this recording.
  void SaveAllStates();
  // Looks at all targets that wait for a look, before the recording ends: each has a control block to be restored.
  void InspectAll();
  // The process is to be looked at (Allocators::Options::look_again).
  void LookAgain(pid_t pid) { AddNewcomer(pid); }
  // A file has just got its probes (Allocators::Options::on_attached).
  void RecordMapping(const elf::Mapping& file);
  // Sets the policy by the rules and the facts, and configures the kernel. A process that is not to be recorded stays a
  // target until the next EndBatch.
  void SetPolicy(Target& target, const process::Facts& facts);
  // Applies new settings to all processes.
  void SetRules(Rules rules, const Policy& defaults, const Retention& retention, double budget);

  // To be called every second: rates, budget, scheduled dumps, age of dumps.
  void Tick(base::Instant now);
  bool IsFolding() const { return upkeep_.IsFolding(); }
  bool failed() const { return failed_; }

 private:
  // Sets the policy, and then calls `then`. Both happen later if the rules need facts that must be read.
  using Then = std::function<void(Target&)>;
  void ApplyPolicy(
      Target& target, Then then = [](Target&) {});
  // The rate of a process until the rules are applied to it: the least that one of them or the default sets. Too many
  // samples at the start of a process that the rule does not concern have the right weights; too few would break the
  // promise of the rule.
  std::optional<uint32_t> FirstRate() const;
  // Tells the kernel the settings of processes until their start event is handled and the rules are applied.
  absl::Status SetDefaults();
  absl::Status UseGroups();
  // Follows control groups that were made again.
  void RefreshGroups();
  // Records a running process if it has a sampled allocator. If that fails, perhaps for want of descriptors or memory,
  // the process is looked at again, with growing pauses.
  void TryToRecord(pid_t pid);
  void HandleTried(pid_t pid, const absl::Status& status);
  bool HasFailedOnce() const;
  // Has hands read the mappings and the control block of a process that was running before it entered. Its rules are
  // found before it gets a rate. Changes nothing if the process is gone, if it has no attached allocator (yet), or if
  // its files are being read; in the last case LookAgain follows.
  void Inspect(const Target& target);
  // Whether no process waits to be looked at. Handles what has been read.
  bool HasInspected();
  void HandleInspected(uint64_t process_id, absl::StatusOr<Inspection> inspection);
  // Whether a reading of a target says that its books were opened after its end.
  bool IsTooLate(const Target& target, const process::Facts* facts) const;
  void Configure(Target& target, const process::Facts& facts);
  // Records a running process, or completes what is known of a recorded one.
  void LookAt(pid_t pid);
  void AddNewcomer(pid_t pid) { newcomers_.Add(pid, static_cast<uint64_t>(pid)); }
  // Applies the current rules to the processes that an earlier rule ignored.
  void RecordIgnored();
  // Looks at all processes again after mapping events were lost.
  void RepairSpaces(base::Instant now);
  void Fail(const absl::Status& status);

  const Means means_;
  RecorderOptions& options_;
  const std::function<void(pid_t, std::function<void(const absl::Status&)>)> record_running_;
  const std::function<void()> pump_;
  Rates rates_;
  Upkeep upkeep_;
  TargetStates* states_ = nullptr;
  // PIDs of processes that have entered without heaptap:start, or whose files have just been read or attached.
  UserQueues newcomers_;
  std::set<uint64_t> to_close_;                          // process ids whose books are to be closed without an end
  std::map<uint64_t, std::vector<Then>> without_facts_;  // process ids of targets whose rule is not known yet
  bool shall_list_again_ = false;
  uint64_t mappings_lost_ = 0;  // as of the last RepairSpaces
  base::Instant repaired_ = base::Instant::InfinitePast();
  std::set<pid_t> failed_looks_;  // processes that will be looked at again
  base::Retries<pid_t> looks_again_{{.first = absl::Seconds(1), .most = absl::Minutes(5)}};
  bool failed_ = false;
  base::ThreadChecker thread_;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_RECORDING_EVERYONE_H_
