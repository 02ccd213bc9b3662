// SPDX-License-Identifier: Apache-2.0
//
// Reads what a system-wide recording must know of its processes, and what they change without an event: their owners,
// their services, their memory, prof.active. Hands read it in another thread, in batches for each user. Not
// thread-safe.
#ifndef HEAPTAP_USERSPACE_TARGETS_READINGS_H_
#define HEAPTAP_USERSPACE_TARGETS_READINGS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "heaptap/contract.h"
#include "userspace/base/clock.h"
#include "userspace/base/thread_checker.h"
#include "userspace/bpf/processes.h"
#include "userspace/crews/looks.h"
#include "userspace/process/facts.h"
#include "userspace/targets/target.h"
#include "userspace/targets/target_table.h"
#include "userspace/targets/user_queues.h"

namespace heaptap::recording {

class Readings {
 public:
  // The objects that this one uses. They must outlive it.
  struct Means {
    const bpf::Processes& processes;
    worker::Looks& orders;
    TargetTable& targets;
  };
  // Called after each reading of a target. The facts are null if the process gave none, for example because it is
  // ending.
  using OnRead = std::function<void(Target&, const process::Facts*)>;
  Readings(const Means& means, OnRead on_read) : means_(means), on_read_(std::move(on_read)), wanted_(means_.orders) {}

  // Has the target read by the next ReadWanted, and once again if a reading of it is under way.
  void Want(const Target& target) { wanted_.Add(target.pid, target.process_id); }
  void ReadWanted();

  // The pause between two rounds that read the facts of all processes. Each round opens the memory of every process.
  static constexpr absl::Duration kRoundPause = absl::Seconds(1);
  // After this time the facts that are known count, so that slow processes, or many processes, of one user delay no
  // list.
  static constexpr absl::Duration kPatience = absl::Milliseconds(50);
  // Begins to read the memory use of all targets, and their facts if that was begun longer than `age` ago. False: it is
  // under way; call this again.
  bool Refresh(base::Instant now, absl::Duration age = kRoundPause);

  // Whether the facts about a target are as of `since`, or later. False: they are being read; call this again.
  bool IsRead(const Target& target, base::Instant since);

  // Notes facts that were read at `read`. A process whose owner ever changed belongs to root only.
  static void Note(Target& target, const process::Facts& facts, base::Instant read);
  // Like Note, for facts from a look at the process. Wants the facts that are missing. False: the facts may be those of
  // its previous image.
  bool NoteLook(Target& target, const process::Facts& facts, base::Instant read);

 private:
  // A target, and what was read of it.
  struct Reading {
    uint64_t process_id = 0;
    pid_t pid = 0;
    uint64_t control_address = 0;
    bool wants_script = false;
    base::Instant begin = {};
    absl::StatusOr<process::Facts> facts = absl::UnavailableError("");  // not read
    std::string script = {};
    std::optional<heaptap_control> control = {};
    bool is_current = false;
  };
  using Batch = std::vector<Reading>;
  void Begin(const std::shared_ptr<Batch>& batch);
  void BeginMemoryUse();
  void Handle(Reading& reading);

  const Means means_;
  const OnRead on_read_;
  UserQueues wanted_;             // process ids
  std::set<uint64_t> under_way_;  // process ids
  std::set<uint64_t> again_;      // those that are wanted again
  // A round that reads all targets.
  struct Round {
    base::Instant begin;
    std::set<uint64_t> left = {};  // process ids that are to be read, or are being read
    bool reads_memory = true;
  };
  std::optional<Round> round_;
  base::Instant all_read_ = base::Instant::InfinitePast();  // when the last round with all facts began
  base::ThreadChecker thread_;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_TARGETS_READINGS_H_
