// SPDX-License-Identifier: Apache-2.0
//
// What the collector's thread needs of other processes at once, through hands (crew.h), each within `patience`.
//
// A user can make the hands wait for ever. Then they are killed and replaced, and for kRest no process of this user is
// looked at: so a user costs the thread a fortieth of its time. Of root's processes only the one that was late rests.
//
// PIDs may be reused: the caller checks afterwards that the PID still means the same process. Errors of all calls: as
// process/maps.h and process/control_block.h; DeadlineExceeded: this process was late; Unavailable: it rests, or there
// are no hands.
//
// Not thread-safe.
#ifndef HEAPTAP_USERSPACE_WORKER_HANDS_H_
#define HEAPTAP_USERSPACE_WORKER_HANDS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "heaptap/contract.h"
#include "userspace/base/clock.h"
#include "userspace/base/subordinate_ids.h"
#include "userspace/elf/mappings.h"
#include "userspace/process/facts.h"
#include "userspace/process/memory_use.h"
#include "userspace/process/residency.h"
#include "userspace/process/start_facts.h"
#include "userspace/worker/crew.h"
#include "userspace/worker/file_jobs.h"
#include "userspace/worker/file_version.h"
#include "userspace/worker/hands_jobs.h"
#include "userspace/worker/request.h"

namespace heaptap::worker {

class Hands {
 public:
  // Of a collector of all users. A thousand times what a job takes on a quiet machine.
  static constexpr absl::Duration kPatience = absl::Milliseconds(500);
  // For the start of new hands, which a busy machine can delay, and no other process. Who is more patient waits longer.
  static constexpr absl::Duration kStartTime = absl::Seconds(1);
  static constexpr absl::Duration kRest = absl::Seconds(20);

  explicit Hands(base::SubordinateIds ids = {}, absl::Duration patience = kPatience)
      : ids_(std::move(ids)), patience_(patience) {}

  absl::StatusOr<std::vector<elf::Mapping>> ReadExecutableMappings(pid_t pid);
  absl::StatusOr<process::Facts> Facts(pid_t pid);
  absl::StatusOr<process::StartFacts> StartFacts(pid_t pid);
  // The names of those of the threads that live.
  absl::StatusOr<std::map<uint32_t, std::string>> ThreadNames(pid_t pid, absl::Span<const uint32_t> tids);
  // Of those of the processes that answer in time, by PID.
  absl::StatusOr<std::map<uint32_t, process::MemoryUse>> MemoryUse(absl::Span<const uint32_t> pids);
  absl::StatusOr<profile::ResidentBytes> Residency(pid_t pid);
  // The file that is mapped there. With a key: the file with this key, which the process has or had mapped there.
  // `identify`: the descriptor of this program.
  absl::StatusOr<MappedFile> Look(int identify, pid_t pid, const elf::Mapping& mapping,
                                  const heaptap_file_key* key = nullptr);
  // Of the file that is mapped there, without a look at the file itself.
  absl::StatusOr<FileVersion> Version(pid_t pid, const elf::Mapping& mapping);
  // Does something with a control block, after `is_current` was true while the process was open. Returns the block that
  // was read; zero after other orders.
  absl::StatusOr<heaptap_control> Control(pid_t pid, const ControlOrder& order, std::function<bool()> is_current);
  // What a process holds back in its struct heaptap_pending at `address`; `is_current`: as above.
  absl::StatusOr<std::vector<heaptap_free>> PendingFrees(pid_t pid, uint64_t address, std::function<bool()> is_current);

 private:
  Answer Do(const Request& request);
  absl::Status StartHands();
  bool IsLate(pid_t pid, base::Instant now);
  void NoteLate(pid_t pid, base::Instant now);

  base::SubordinateIds ids_;
  const absl::Duration patience_;
  std::unique_ptr<Crew> crew_;  // null: not started
  std::map<pid_t, base::Instant> late_processes_;
  std::map<uid_t, base::Instant> late_users_;
};

}  // namespace heaptap::worker

#endif  // HEAPTAP_USERSPACE_WORKER_HANDS_H_
