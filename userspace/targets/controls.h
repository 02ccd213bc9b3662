// SPDX-License-Identifier: Apache-2.0
//
// What the recording reads from the control blocks of targets, and what it writes to them. Hands do that in another
// thread (crews/looks.h): the recording's thread waits for no process. Not thread-safe.
//
// A target may have ended, or be gone, when an order has been carried out; then nothing changes.
#ifndef HEAPTAP_USERSPACE_TARGETS_CONTROLS_H_
#define HEAPTAP_USERSPACE_TARGETS_CONTROLS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "heaptap/contract.h"
#include "userspace/base/clock.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/thread_checker.h"
#include "userspace/bpf/processes.h"
#include "userspace/crews/hands.h"
#include "userspace/crews/looks.h"
#include "userspace/targets/target.h"
#include "userspace/targets/target_table.h"

namespace heaptap::recording {

class Controls {
 public:
  // The objects that this one uses. They must outlive it.
  struct Means {
    bpf::Processes& processes;
    worker::Looks& orders;
    TargetTable& targets;
  };
  struct Options {
    bool is_system_wide = false;  // processes that another collector controls are recorded too
    uint32_t follow = 0;          // HEAPTAP_COLLECTOR_FOLLOWS, HEAPTAP_COLLECTOR_GIVES_AREAS
  };
  Controls(const Means& means, const Options& options) : means_(means), options_(options) {}

  // Notes the facts about a target that its control block tells.
  static void Note(Target& target, const heaptap_control& control, uint64_t address);
  // Notes the facts that may change. Null: the control block could not be read.
  static void NoteReading(Target& target, const heaptap_control* control);
  // Notes that the allocator of a target was seen. Returns whether this was the first time.
  static bool NoteStarted(Target& target);
  // Notes that a target has the memory of its parent, and so its allocator, which will fire heaptap:start.
  static void NoteParent(Target& target, const Target& parent);
  // Notes a target's own rate.
  static void NoteOwnRate(Target& target, uint64_t lg_sample);
  // Handles heaptap:start. Errors: those of process::CheckControl, which are printed once for each target.
  absl::Status NoteStart(Target& target, const heaptap_control& control, uint64_t address);
  // Takes control of a target whose control block is noted, unless another collector has it.
  void Take(Target& target, const heaptap_control& control);
  // Like Take, for a target whose control block was found, and not announced by heaptap:start. Counts what the process
  // allocated before its recording as a loss, unless its beginning was seen all the same.
  void TakeFound(Target& target, const heaptap_control& control, uint64_t address);

  // A control block that was found.
  struct Found {
    uint64_t address = 0;
    heaptap_control control = {};
  };
  using FoundDone = std::function<void(absl::StatusOr<Found>)>;
  // Reads the first valid control block of a process. If a process has several allocators, one takes samples, and the
  // block of another may be empty (sample.h). `is_current`: as for Hands::Control. REQUIRES: an address.
  void Find(pid_t pid, const std::vector<uint64_t>& addresses, std::function<bool()> is_current, FoundDone done);
  // Like Find, for a target; then takes control of it.
  void FindAndTake(const Target& target, const std::vector<uint64_t>& addresses,
                   std::function<void(const absl::Status&)> done);

  // Carries out an order on the control block of a target, and tries again if the first try failed. Errors are those of
  // Hands; Unavailable: too many orders wait already. A message says once that a process is late. REQUIRES:
  // control_address.
  using OrderDone = std::function<void(absl::StatusOr<heaptap_control>)>;
  void Order(const Target& target, worker::ControlVerb verb, uint32_t argument, OrderDone done);
  void Read(const Target& target, OrderDone done) { Order(target, worker::ControlVerb::kRead, 0, std::move(done)); }
  // Writes the collector and the rate to the target's control block, if it has one. If that fails, prints a message
  // once for each target, unless the process is late, and marks the target (is_unwritten) until a later call succeeds.
  // `done` gets Unavailable if another call is under way, which then writes the wanted rate.
  using WriteDone = std::function<void(const absl::Status&)>;
  void Write(
      Target& target, WriteDone done = [](const absl::Status&) {});
  // Writes this rate for the target; none: the rate of its policy, or its own. If that fails, the target keeps the rate
  // that it had. REQUIRES: not is_writing.
  void AskRate(Target& target, std::optional<uint32_t> lg_sample, WriteDone done);
  // Writes that the budget makes the target's samples rarer by this many steps.
  void Raise(Target& target, uint32_t steps, base::Instant now);
  // Writes prof.active. REQUIRES: control_address.
  void SetActive(const Target& target, bool active, WriteDone done);
  // Takes control of a target whose other collector has ended.
  void TakeOver(Target& target);
  // Removes the collector and the rate from the target's control block, if it has one, or prints that they stay there.
  void Release(Target& target);
  // Tells a target that waits for the tables of its mappings that they are in the kernel. `asked`: its question.
  void AnswerTables(const Target& target, uint32_t asked);

  // Passes `done` the other living collector that the control block names, or null.
  using CollectorDone = std::function<void(std::shared_ptr<const OtherCollector>)>;
  void FindCollector(const heaptap_control& control, CollectorDone done);

 private:
  // `other`: the collector that has control of the target, or null.
  void TakeUnless(std::shared_ptr<const OtherCollector> other, Target& target, const heaptap_control& control);
  void HandleWritten(Target& target, const absl::Status& status, uint32_t rate);
  // Whether the target is still current, to be called in another thread.
  std::function<bool()> IsCurrent(const Target& target) const;
  void NoteLate(uint64_t process_id, const absl::Status& status);
  // Prints the line, unless too many were printed.
  void Report(absl::string_view line);

  const Means means_;
  const Options options_;
  std::set<pid_t> collectors_reported_;  // others, with a message
  size_t failures_reported_ = 0;
  base::ThreadChecker thread_;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_TARGETS_CONTROLS_H_
