// SPDX-License-Identifier: Apache-2.0
//
// Reads what a system-wide recording must know of its processes, and what they change without an event: whose they are,
// their services, their memory, prof.active. Hands read it in another thread, in batches for each user. Not
// thread-safe.
#ifndef HEAPTAP_USERSPACE_RECORDING_READINGS_H_
#define HEAPTAP_USERSPACE_RECORDING_READINGS_H_

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
#include "userspace/bpf/processes.h"
#include "userspace/process/facts.h"
#include "userspace/recording/target.h"
#include "userspace/recording/target_table.h"
#include "userspace/worker/looks.h"

namespace heaptap::recording {

class Readings {
 public:
  // What it needs of others, which must outlive this object.
  struct Means {
    const bpf::Processes& processes;
    worker::Looks& orders;
    TargetTable& targets;
  };
  // Called after each reading of a target. Without facts: the process gave none, as one that is ending.
  using OnRead = std::function<void(Target&, const process::Facts*)>;
  Readings(const Means& means, OnRead on_read)
      : processes_(means.processes), orders_(means.orders), targets_(means.targets), on_read_(std::move(on_read)) {}

  // The target is to be read with the next ReadWanted; again, if a reading of it is under way.
  void Want(const Target& target) { wanted_.insert(target.process_id); }
  void ReadWanted();

  // Begins to read all targets, if that was long ago. False: it is under way; call this again. Users whose processes
  // are slow, or many, delay nobody: after kPatience what is known counts.
  static constexpr absl::Duration kPatience = absl::Milliseconds(50);
  bool Refresh(base::Instant now);

  // Whether the facts about a target are as of `since`, or later. False: they are being read; call this again.
  bool IsRead(const Target& target, base::Instant since);

  // Notes the facts about a target that were read at `read`. A process whose owner ever changed
  // belongs to root only.
  static void Note(Target& target, const process::Facts& facts, base::Instant read);

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

  const bpf::Processes& processes_;
  worker::Looks& orders_;
  TargetTable& targets_;
  const OnRead on_read_;
  std::set<uint64_t> wanted_;     // process ids
  std::set<uint64_t> under_way_;  // process ids
  // Of all targets.
  struct Round {
    base::Instant begin;
    std::set<uint64_t> left = {};  // process ids that are to be read, or are being read
    bool reads_memory = true;
  };
  std::optional<Round> round_;
  base::Instant all_read_ = base::Instant::InfinitePast();  // when the last round with all facts began
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_RECORDING_READINGS_H_
