// SPDX-License-Identifier: Apache-2.0
//
// What the collector needs of other processes at once, through hands (crew.h).
//
// A user can make the hands wait for ever. So each call has a time limit. After that the hands are killed and replaced,
// and the process rests: calls about it fail for a second, and longer each time. Time in which the hands only wait for
// a processor is not the process's fault, and has a longer limit. Whoever works for several users lets them pay for the
// time of the calls (looks.h).
//
// PIDs may be reused: the caller checks afterwards that the PID still means the same process. Errors of all calls:
// those of process/maps.h and process/control_block.h; DeadlineExceeded: this process was late; Unavailable: it rests,
// or there are no hands. Both may pass.
//
// Not thread-safe.
#ifndef HEAPTAP_USERSPACE_CREWS_HANDS_H_
#define HEAPTAP_USERSPACE_CREWS_HANDS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "heaptap/contract.h"
#include "userspace/base/clock.h"
#include "userspace/base/retries.h"
#include "userspace/crews/crew.h"
#include "userspace/elf/mappings.h"
#include "userspace/process/facts.h"
#include "userspace/process/memory_use.h"
#include "userspace/process/residency.h"
#include "userspace/process/start_facts.h"
#include "userspace/worker/area_job.h"
#include "userspace/worker/file_jobs.h"
#include "userspace/worker/file_version.h"
#include "userspace/worker/hands_jobs.h"
#include "userspace/worker/request.h"

namespace heaptap::worker {

// Whether an error of the calls below says nothing about the process: it was late, or there was no time for the call.
inline bool MayPass(const absl::Status& status) {
  return absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status);
}

struct HandsBounds {
  absl::Duration patience;
  // The patience while the hands are ready to run, as on a machine with more work than processors. A value below
  // `patience` has no effect.
  absl::Duration longest = absl::ZeroDuration();
};

class Hands {
 public:
  using Bounds = HandsBounds;
  // A thousand times what a call takes on a quiet machine.
  static constexpr Bounds kDefault = {.patience = absl::Milliseconds(500), .longest = absl::Seconds(5)};
  // The time for the start of new hands, which a busy machine can delay, but no other process can. If `patience` is
  // longer, it counts instead.
  static constexpr absl::Duration kStartTime = absl::Seconds(1);
  static constexpr base::RetryPauses kRest = {.first = absl::Seconds(1), .most = absl::Seconds(20)};

  explicit Hands(const Bounds& bounds = kDefault) : bounds_(bounds) {}

  absl::StatusOr<std::vector<elf::Mapping>> ReadExecutableMappings(pid_t pid);
  absl::StatusOr<process::Facts> Facts(pid_t pid);
  absl::StatusOr<process::StartFacts> StartFacts(pid_t pid);
  // The names of the given threads, without threads that have ended.
  absl::StatusOr<std::map<uint32_t, std::string>> ThreadNames(pid_t pid, absl::Span<const uint32_t> tids);
  // By PID. Processes are left out if the hands are late.
  std::map<uint32_t, process::MemoryUse> MemoryUse(absl::Span<const uint32_t> pids);
  absl::StatusOr<profile::ResidentBytes> Residency(pid_t pid);
  // The file that is mapped there. With a key: the file with this key, which the process has or had mapped there.
  // `identify`: the descriptor of this program.
  absl::StatusOr<MappedFile> Look(int identify, pid_t pid, const elf::Mapping& mapping,
                                  const heaptap_file_key* key = nullptr);
  // The version of the file that is mapped there, without a look at the file itself.
  absl::StatusOr<FileVersion> Version(pid_t pid, const elf::Mapping& mapping);
  // Carries out an order on a control block, if `is_current` returns true while the process is open. Returns the block
  // that was read; after other orders, a block of zeros.
  absl::StatusOr<heaptap_control> Control(pid_t pid, const ControlOrder& order, std::function<bool()> is_current);
  // The frees that a process holds back in its struct heaptap_pending at `address`; `is_current`: as for Control.
  absl::StatusOr<std::vector<heaptap_free>> PendingFrees(pid_t pid, uint64_t address, std::function<bool()> is_current);

  // Sends an area to the socket of the process; -1: refuses. `is_current`: as for Control.
  absl::Status GiveArea(pid_t pid, const AreaSocket& socket, int area, std::function<bool()> is_current);

  // How long the hands only waited for a processor, in the calls since TakeProcessorWait was called last.
  absl::Duration TakeProcessorWait();

 private:
  Answer Do(const Request& request);
  absl::Status StartHands();
  void EndHands();
  // Waits for the start of the hands.
  absl::Status AwaitHands();

  const Bounds bounds_;
  absl::Duration processor_wait_ = {};  // of hands that were replaced
  std::unique_ptr<Crew> crew_;          // null: not started
  bool has_answered_ = false;           // since its start
  base::Retries<pid_t> late_{kRest};
};

}  // namespace heaptap::worker

#endif  // HEAPTAP_USERSPACE_CREWS_HANDS_H_
