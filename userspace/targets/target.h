// SPDX-License-Identifier: Apache-2.0
//
// A TARGET is one recorded process image. It begins when a user asks for its recording, when it enters a system-wide
// recording, or with a fork or an exec of a target; it ends with exec or exit.
#ifndef HEAPTAP_USERSPACE_TARGETS_TARGET_H_
#define HEAPTAP_USERSPACE_TARGETS_TARGET_H_

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "heaptap/contract.h"
#include "userspace/base/clock.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/process/handle.h"
#include "userspace/process/memory_use.h"
#include "userspace/profile/frames.h"
#include "userspace/spaces/address_spaces.h"
#include "userspace/targets/dump_sequence.h"
#include "userspace/targets/policy.h"

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
};

// What was read of its process (readings.h).
struct KnownFacts {
  base::Instant read = base::Instant::InfinitePast();   // when the last reading began
  base::Instant tried = base::Instant::InfinitePast();  // when the last try ended
  bool was_running = false;                             // at a reading
  // The user who may look at it besides root, if every reading gave the same one.
  std::optional<uid_t> owner = {};
  std::optional<uid_t> user = {};  // the effective one
  // The last service and the last control group that it had (process/service_name.h); none: it has none, or they are
  // unknown.
  std::optional<std::string> service = {};
  std::optional<std::string> control_group = {};
  std::vector<std::string> control_groups = {};
  std::string script = {};  // that it runs; "" for a process in a unit, whose name counts
  bool is_script_read = false;
  process::MemoryUse memory = {};

  bool is_known() const { return read != base::Instant::InfinitePast(); }
};

// Another collector that records a target.
struct OtherCollector {
  pid_t pid;
  base::FileDescriptor pidfd;

  bool HasEnded() const { return process::HasEnded(pidfd.get()); }
};

// What the process has told: what its allocator is, and how it wants to be recorded.
struct Image {
  bool has_started = false;  // its allocator was seen
  bool was_found = false;    // its control block was found before it fired heaptap:start (Controls::TakeFound)
  uint64_t control_address = 0;
  profile::AddressRange allocator = {};
  std::optional<std::string> allocator_name = {};  // process::AllocatorName; none: it has no control block
  uint32_t lg_sample = HEAPTAP_DEFAULT_LG_SAMPLE;  // its own rate
  uint32_t max_frames = UINT32_MAX;                // its own limit for a context
  bool raw = false;                                // it wants its own dumps uncorrected
  bool prof_leak = false;                          // it wants to know what is live at its end
  std::optional<bool> active = {};                 // prof.active at the last reading
};

// What this collector tells it in its control block.
struct Control {
  bool is_refused = false;                           // the control block was invalid, and that was reported
  bool is_foreign = false;                           // another collector controls it, or that is being found out
  std::shared_ptr<const OtherCollector> other = {};  // that controls it
  bool is_unwritten = false;                         // the control block could not be written, and that was reported
  bool was_late = false;                             // its memory did not answer in time, and that was reported
  bool is_writing = false;                           // the control block is being written
  bool shall_release = false;                        // to be released when the writing has ended
  std::optional<uint32_t> asked_lg_sample = {};      // the rate that a client has set
  uint32_t raised = 0;                               // steps of the budget
  base::Instant raised_at = base::Instant::InfinitePast();  // when the budget last made its samples rarer
  std::optional<uint32_t> written_rate = {};                // WantedRate() when it was last written
};

// Whether its policy holds.
struct PolicyState {
  bool was_found = false;        // by the rules; else the policy is the default
  bool awaits_facts = false;     // which its rule needs
  bool is_unconfigured = false;  // the kernel had no memory to apply it, and that was reported
};

// The dumps that it asked for, or that were due.
struct Requested {
  bool own_final = false;                                   // it requested its own final dump, which has not failed
  base::Instant scheduled = base::Instant::InfinitePast();  // the last scheduled dump
  base::Instant triggered = base::Instant::InfinitePast();  // the last triggered dump
  // A triggered dump that was too soon after the last one.
  std::optional<heaptap_dump_kind> postponed = {};
};

// A part of a target. Every class may read it, and one class may change it. Whoever makes a target makes its parts.
template <typename State, typename Writer>
class Part {
 public:
  Part() = default;
  Part(State state) : state_(std::move(state)) {}  // NOLINT(google-explicit-constructor): as if it were the state
  Part& operator=(State) = delete;
  const State& operator*() const { return state_; }
  const State* operator->() const { return &state_; }

 private:
  friend Writer;
  State state_ = {};
};

class Controls;
class Dumps;
class Everyone;
class Readings;
class Requests;

// The name of a process whose name is not known yet.
inline constexpr absl::string_view kUnknownName = "?";

struct Target {
  uint64_t process_id = 0;
  pid_t pid = 0;
  std::string name = std::string(kUnknownName);  // its comm, printable
  bool has_execed = false;                       // its books began with an exec
  bool is_saved = false;  // its saved state is current; a change of what is saved sets this to false
  std::optional<Ending> ending = {};
  Part<Image, Controls> image = {};
  Part<Control, Controls> control = {};
  Part<Policy, Everyone> policy = {};
  Part<PolicyState, Everyone> policy_state = {};
  Part<BookFigures, Everyone> books = {};
  Part<DumpSequence, Dumps> sequence = {};
  Part<Requested, Requests> requested = {};
  Part<KnownFacts, Readings> facts = {};

  // Its rate is the one that a client has set, else the one of its policy, else its own, plus the steps of the budget.
  std::optional<uint32_t> RequestedRate() const {
    return control->asked_lg_sample.has_value() ? control->asked_lg_sample : policy->lg_sample;
  }
  // The rate that it should have.
  uint32_t WantedRate() const {
    return std::min<uint32_t>(RequestedRate().value_or(image->lg_sample) + control->raised, HEAPTAP_MAX_LG_SAMPLE);
  }
  // The rate that it has: a new one does not hold until it is written.
  uint32_t LgSample() const {
    return control->is_unwritten || control->is_writing ? control->written_rate.value_or(WantedRate()) : WantedRate();
  }
  // The rate to write to the control block.
  uint32_t CollectorRate() const {
    return RequestedRate().has_value() || control->raised != 0 ? WantedRate() : HEAPTAP_NO_RATE;
  }
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_TARGETS_TARGET_H_
