// SPDX-License-Identifier: Apache-2.0
//
// How a process is recorded: what the command line, the configuration file and the rules decide.
//
// Thread-compatible.
#ifndef HEAPTAP_USERSPACE_SERVICE_POLICY_H_
#define HEAPTAP_USERSPACE_SERVICE_POLICY_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "userspace/bpf/books.h"

namespace heaptap::service {

// Below this much live memory there is no high-water mark: the first samples of a program would all be new ones. Bytes.
inline constexpr uint64_t kFirstHighWater = 1 << 20;

enum class DumpAtExit {
  kAlways,
  kFatal,  // if a signal ended it, the kernel's OOM killer's among them
  kNever,
};

struct Policy {
  bool record = true;
  std::optional<uint32_t> lg_sample = {};  // nothing: as the process has it
  bpf::Triggers triggers = {};
  absl::Duration every = absl::ZeroDuration();  // from one dump on the schedule to the next; 0: never
  uint32_t max_live = 0;                        // its share of the map of live objects, entries; 0: no bound
  uint32_t max_contexts = 0;                    // of the map of tallies, entries; 0: no bound
  DumpAtExit dump_at_exit = DumpAtExit::kFatal;
};

// Changes one setting:
//
//   record=on|off
//   lg-sample=N           0 to 46
//   exact                 as lg-sample=0; it takes no value, so `value` is ""
//   high-water=PERCENT    1 to 1000000, or off
//   interval=BYTES        K, M, G, T are binary; or off
//   every=DURATION        as absl::ParseDuration has it (10m, 1h30m), a second at least; or off
//   max-live=N            0: no bound
//   max-contexts=N        0: no bound
//   dump-at-exit=always|fatal|never
//
// NotFound: there is no such setting. InvalidArgument: not such a value; the message is what is needed ("a number from
// 0 to 46"). Changes nothing then.
absl::Status SetPolicy(absl::string_view name, absl::string_view value, Policy& policy);

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_POLICY_H_
