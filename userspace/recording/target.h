// SPDX-License-Identifier: Apache-2.0
//
// A TARGET is one recorded process image. It begins when it is told to be recorded, when it enters a system-wide
// recording, or with a fork or an exec of a target; it ends with exec or exit.
#ifndef HEAPTAP_USERSPACE_RECORDING_TARGET_H_
#define HEAPTAP_USERSPACE_RECORDING_TARGET_H_

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "heaptap/contract.h"
#include "userspace/base/clock.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/process/handle.h"
#include "userspace/process/memory_use.h"
#include "userspace/profile/frames.h"
#include "userspace/recording/address_spaces.h"
#include "userspace/recording/dump_folder.h"
#include "userspace/recording/policy.h"

namespace heaptap::recording {

// How a target ended.
struct Ending {
  bool is_known = true;  // false: the end was missed, so the status is unknown
  int status = 0;        // as in wait(2)
  bool by_oom_kill = false;
  uint64_t peak = 0;  // the maximum of its live estimate, bytes
  absl::Time time = {};
  // Its mappings; null if unknown.
  std::shared_ptr<const AddressSpace> space = {};
};

// A target's figures at the last Tick, for differences over time.
struct Reading {
  base::Instant time = base::Instant::InfinitePast();
  uint64_t allocated_weight = 0;
  uint64_t probes = 0;        // hits
  uint64_t program_time = 0;  // of the eBPF programs, nanoseconds
};

// What was measured on a target's books. After prof.reset it has other books, and these figures begin anew.
struct BookFigures {
  absl::Time since = {};     // beginning of the books
  base::Instant begun = {};  // as `since`, or earlier
  // When its mappings were known, if an earlier recorder has saved them.
  std::optional<base::Instant> mappings_saved = {};
  Reading last = {};
  double allocation_rate = 0;  // bytes per second
  double cost = 0;             // CPU time of its probes, as a share of one core
  bool is_saved = false;       // whether the saved state is current
};

// What was read of its process (readings.h).
struct ReadFacts {
  base::Instant read = base::Instant::InfinitePast();   // when the last reading began
  base::Instant tried = base::Instant::InfinitePast();  // when the last try ended
  // The user who may look at it besides root, if every reading gave the same one.
  std::optional<uid_t> owner = {};
  // The last ones that it had (process/service_name.h); none: it has none, or they are unknown.
  std::optional<std::string> service = {};
  std::optional<std::string> control_group = {};
  std::vector<std::string> control_groups = {};
  std::string script = {};  // that it runs; "" for a process in a unit, whose name counts
  process::MemoryUse memory = {};

  bool is_known() const { return read != base::Instant::InfinitePast(); }
};

// Another collector that records a target.
struct OtherCollector {
  pid_t pid;
  base::FileDescriptor pidfd;

  bool HasEnded() const { return process::HasEnded(pidfd.get()); }
};

struct Target {
  uint64_t process_id = 0;
  pid_t pid = 0;
  std::string name = {};         // its comm, printable
  bool started = false;          // its allocator was seen
  bool has_execed = false;       // its books began with an exec
  bool was_found = false;        // its control block was found before it fired heaptap:start (Controls::TakeFound)
  bool own_final = false;        // it requested its own final dump, which has not failed
  bool control_refused = false;  // its control block was invalid, and that was reported
  bool is_missing = false;       // the kernel's map had no entry for it at the last Tick
  bool foreign = false;          // another collector controls it, or that is being found out
  bool awaits_policy = false;    // until its facts have been read
  bool is_unconfigured = false;  // the kernel had no memory to apply its policy, and that was reported
  bool is_unwritten = false;     // its control block could not be written, and that was reported
  bool was_late = false;         // its memory did not answer in time, and that was reported
  bool is_writing = false;       // its control block is being written
  bool shall_release = false;    // when that has ended
  std::shared_ptr<const OtherCollector> other = {};  // that controls it
  ReadFacts facts = {};
  std::optional<bool> active = {};  // prof.active at the last reading
  // What its allocator is (process::AllocatorName) at the last reading; none: it has no control block.
  std::optional<std::string> allocator_name = {};
  uint64_t control_address = 0;
  profile::AddressRange allocator = {};
  uint32_t max_frames = UINT32_MAX;  // the process's own limit for a context
  bool raw = false;                  // the process wants its own dumps uncorrected
  bool prof_leak = false;            // the process wants to know what is live at its end
  DumpSequence sequence = {};

  // Its rate is the first of these three that is set, plus the steps of the budget.
  std::optional<uint32_t> asked_lg_sample = {};  // set by a client
  Policy policy = {};
  uint32_t own_lg_sample = HEAPTAP_DEFAULT_LG_SAMPLE;
  uint32_t raised = 0;
  std::optional<uint32_t> written_rate = {};  // WantedRate() when it was last written

  BookFigures books = {};
  base::Instant dumped = base::Instant::InfinitePast();     // the last scheduled dump
  base::Instant triggered = base::Instant::InfinitePast();  // the last triggered dump
  // A triggered dump that was too soon after the last one.
  std::optional<heaptap_dump_kind> postponed = {};
  base::Instant raised_at = base::Instant::InfinitePast();  // when the budget last made its samples rarer
  std::optional<Ending> ending = {};

  std::optional<uint32_t> RequestedRate() const {
    return asked_lg_sample.has_value() ? asked_lg_sample : policy.lg_sample;
  }
  // The rate that it shall have.
  uint32_t WantedRate() const {
    return std::min<uint32_t>(RequestedRate().value_or(own_lg_sample) + raised, HEAPTAP_MAX_LG_SAMPLE);
  }
  // The rate that it has: a new one does not hold until it is written.
  uint32_t LgSample() const { return is_unwritten || is_writing ? written_rate.value_or(WantedRate()) : WantedRate(); }
  // The rate to write to the control block.
  uint32_t CollectorRate() const { return RequestedRate().has_value() || raised != 0 ? WantedRate() : HEAPTAP_NO_RATE; }
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_RECORDING_TARGET_H_
