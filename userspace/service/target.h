// SPDX-License-Identifier: Apache-2.0
//
// A TARGET is one recorded process image: it begins when somebody records it or it enters by itself, with a fork or an
// exec, and ends with exec or exit.
#ifndef HEAPTAP_USERSPACE_SERVICE_TARGET_H_
#define HEAPTAP_USERSPACE_SERVICE_TARGET_H_

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "heaptap/contract.h"
#include "userspace/profile/frames.h"
#include "userspace/service/address_spaces.h"
#include "userspace/service/dump_folder.h"
#include "userspace/service/policy.h"

namespace heaptap::service {

// How a target ended.
struct Ending {
  bool is_known = true;  // how it ended; else nobody saw it
  int status = 0;        // as wait(2) has it
  bool by_oom_kill = false;
  uint64_t peak = 0;  // the most that its live estimate has been, bytes
  absl::Time time = {};
  // What it had mapped; null if nobody knows.
  std::shared_ptr<const AddressSpace> space = {};
};

// What its figures were when somebody looked last, for the difference.
struct Reading {
  absl::Time time = absl::InfinitePast();
  uint64_t allocated_weight = 0;
  uint64_t probes = 0;        // that were hit
  uint64_t program_time = 0;  // nanoseconds
};

struct Target {
  uint64_t process_id = 0;
  pid_t pid = 0;
  std::string name = {};           // its comm, printable
  absl::Time since = {};           // when it began
  bool started = false;            // its allocator has shown itself
  bool own_final = false;          // it asked for its final dump itself, and none has failed
  bool control_refused = false;    // its control block made no sense, and that was said
  bool has_lost_mappings = false;  // it may have mapped what we have not heard of
  bool is_missed = false;          // the kernel did not know it any more when somebody looked last
  bool foreign = false;            // another collector's word is in its control block
  pid_t other_collector = 0;       // then, that one
  // Whoever may look at it besides root, the same each time that somebody asked; nobody else.
  std::optional<uid_t> owner = {};
  bool owner_known = false;
  std::optional<bool> active = {};  // prof.active, when somebody looked last
  bool reachable = true;            // its memory has not made anybody wait yet
  uint64_t control_address = 0;
  profile::AddressRange allocator = {};
  uint32_t max_frames = UINT32_MAX;  // that the process wants in a context
  bool raw = false;                  // it wants dumps of its own uncorrected
  DumpSequence sequence = {};

  // Its rate is the first of these that is given, and what the budget adds to it.
  std::optional<uint32_t> asked_lg_sample = {};  // by a client
  Policy policy = {};
  uint32_t own_lg_sample = HEAPTAP_DEFAULT_LG_SAMPLE;
  uint32_t raised = 0;

  Reading last = {};
  double allocation_rate = 0;                   // bytes a second
  double cost = 0;                              // of a core, in the kernel
  absl::Time dumped = {};                       // on the schedule
  absl::Time triggered = absl::InfinitePast();  // when a trigger's dump was written last
  // What a trigger asked for too soon after that.
  std::optional<heaptap_dump_kind> postponed = {};
  absl::Time raised_at = absl::InfinitePast();  // when the budget made its samples rarer
  bool is_saved = false;                        // its state, as it is
  std::optional<Ending> ending = {};

  std::optional<uint32_t> WishedRate() const {
    return asked_lg_sample.has_value() ? asked_lg_sample : policy.lg_sample;
  }
  uint32_t LgSample() const {
    return std::min<uint32_t>(WishedRate().value_or(own_lg_sample) + raised, HEAPTAP_MAX_LG_SAMPLE);
  }
  // For the control block.
  uint32_t CollectorRate() const { return WishedRate().has_value() || raised != 0 ? LgSample() : HEAPTAP_NO_RATE; }
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_TARGET_H_
