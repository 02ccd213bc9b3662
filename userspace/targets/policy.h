// SPDX-License-Identifier: Apache-2.0
//
// How a process is recorded, as set by the command line, the configuration file and the rules.
//
// Thread-compatible.
#ifndef HEAPTAP_USERSPACE_TARGETS_POLICY_H_
#define HEAPTAP_USERSPACE_TARGETS_POLICY_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "userspace/bpf/processes.h"

namespace heaptap::recording {

// Below this many bytes of live memory there is no high-water mark: each of a program's first samples would be one.
inline constexpr uint64_t kFirstHighWater = 1 << 20;

enum class DumpAtExit {
  kAlways,
  kFatal,  // if a signal ended it, including the OOM killer's
  kNever,
};

struct Policy {
  bool record = true;
  std::optional<uint32_t> lg_sample = {};  // none: the process's own
  bpf::Triggers triggers = {};
  absl::Duration every = absl::ZeroDuration();  // between two scheduled dumps; 0: none
  uint32_t max_live = 0;                        // entries in the map of live objects; 0: no bound
  uint32_t max_contexts = 0;                    // entries in the map of tallies; 0: no bound
  DumpAtExit dump_at_exit = DumpAtExit::kFatal;
};

// Changes one setting:
//
//   record=on|off
//   lg-sample=N           0 to 46
//   exact                 same as lg-sample=0; without a value (`value` is "")
//   high-water=PERCENT    1 to 1000000, or off
//   interval=BYTES        K, M, G, T are binary; or off
//   every=DURATION        in absl::ParseDuration's form (10m, 1h30m), at least a second; or off
//   max-live=N            0: no bound
//   max-contexts=N        0: no bound
//   dump-at-exit=always|fatal|never
//
// NotFound: unknown setting. InvalidArgument: invalid value; the message says what is expected ("expected a number from
// 0 to 46"). On error, nothing changes.
absl::Status SetPolicy(absl::string_view name, absl::string_view value, Policy& policy);

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_TARGETS_POLICY_H_
