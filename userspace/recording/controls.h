// SPDX-License-Identifier: Apache-2.0
//
// What the recording reads of targets and writes to them: their control blocks, and whose processes they are. Hands do
// that (worker/hands.h). Not thread-safe.
#ifndef HEAPTAP_USERSPACE_RECORDING_CONTROLS_H_
#define HEAPTAP_USERSPACE_RECORDING_CONTROLS_H_

#include <sys/types.h>

#include <cstdint>
#include <set>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "heaptap/contract.h"
#include "userspace/bpf/processes.h"
#include "userspace/recording/target.h"
#include "userspace/worker/hands.h"

namespace heaptap::recording {

class Controls {
 public:
  struct Options {
    bool is_system_wide = false;  // processes that another collector controls are recorded too
    bool follow = false;          // children are recorded too
  };
  // `processes` and `hands` must outlive this object.
  Controls(bpf::Processes& processes, worker::Hands& hands, const Options& options)
      : processes_(processes), hands_(hands), options_(options) {}

  // Takes the facts about a target from its control block, and control of it unless another collector has that.
  void Use(Target& target, const heaptap_control& control, uint64_t address);
  // The same for a process whose control block was found, not announced by heaptap:start: counts what it has allocated
  // before its recording as a loss, unless its beginning was seen all the same.
  void UseFound(Target& target, const heaptap_control& control, uint64_t address);
  // The same, and reads the control block. Nothing happens if it cannot be read.
  absl::Status TakeFound(Target& target, uint64_t address);
  // Does something with the control block of a target, at the second try if the first one failed. Errors as those of
  // Hands; that a process is late is said once.
  absl::StatusOr<heaptap_control> Order(Target& target, worker::ControlVerb verb, uint32_t argument = 0);
  // Writes the collector and the rate to the target's control block, if it has one. Says once for each target that this
  // fails, unless the process is late, and marks it (is_unwritten) until a later call succeeds.
  void Write(Target& target);
  // Removes the collector and the rate from the target's control block, if it has one, or says that they stay there.
  void Release(Target& target);
  // Tells a target that waits for the tables of its mappings that they are in the kernel. `asked`: its question.
  void AnswerTables(Target& target, uint32_t asked);
  // Reads what a process changes without an event: prof.active, and the name of its allocator, which is known late.
  void ReadActive(Target& target);

  // The PID of another living collector that records the process, 0 if none.
  pid_t OtherCollector(const heaptap_control& control);
  bool IsCollector(pid_t pid);

  // Reads whose process it is, and its service and control group, for the time after its end too. A process whose owner
  // ever changed belongs to root only. False: that is not known now, because the process was late or its user has no
  // time left; then nothing changes.
  bool NoteOwner(Target& target);

 private:
  // Says it, unless too much was said.
  void Report(absl::string_view line);

  bpf::Processes& processes_;
  worker::Hands& hands_;
  const Options options_;
  std::set<pid_t> collectors_reported_;  // other collectors
  size_t failures_reported_ = 0;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_RECORDING_CONTROLS_H_
