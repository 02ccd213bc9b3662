// SPDX-License-Identifier: Apache-2.0
//
// The last books of another build of heaptap, which its collector left pinned.
//
// Fields are found by their names in bpf/books.h or in older versions; their sizes, order and neighbours may differ.
// Numbers (flags, ends of stacks, reasons of losses) must have the meaning they have there, so a new meaning needs a
// new number. Nothing here changes the maps. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_BPF_OTHER_LAYOUT_H_
#define HEAPTAP_USERSPACE_BPF_OTHER_LAYOUT_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/bpf/entries.h"
#include "userspace/bpf/pins.h"

namespace heaptap::bpf {

struct OtherProcess {
  uint64_t process_id = 0;
  pid_t tgid = 0;
  uint32_t flags = 0;  // HEAPTAP_PROCESS_*
  bool ended = false;  // without a collector that noticed; the PID may belong to another process by now
};

struct OtherStack {
  std::vector<uint64_t> frames;  // as in heaptap_stack, at most HEAPTAP_MAX_FRAMES
  uint32_t end = 0;              // enum heaptap_stack_end; TRUNCATED also if frames were cut or the number is unknown
};

struct OtherBooks {
  // Without processes that share the books of their parent. The actions of processes after the stop are not known.
  std::vector<OtherProcess> processes;
  // By process id. A process that is not in `processes` has ended, and its PID is unknown.
  std::map<uint64_t, std::vector<TallyEntry>> tallies;
  // The stacks of the tallies, by stack id; some may be missing.
  std::map<uint64_t, OtherStack> stacks;
  // By process id; 0: losses of no known process. Reasons that this build does not know are left out.
  std::map<uint64_t, Losses> losses;
};

constexpr absl::Duration kLongestDetach = absl::Seconds(5);

// Stops the programs that write into the maps: removes the pins of links and programs, and waits until the kernel has
// detached the programs, which takes some RCU grace periods. The maps stay pinned. DeadlineExceeded: programs are still
// attached, because another process holds them or because they are many; the books may still change.
absl::Status StopOtherLayout(const Pins& pins, absl::Duration longest = kLongestDetach);

// To be called after StopOtherLayout. Leaves out books that were closed, and those that an exec or a reset has ended.
// FailedPrecondition: a map or a field is missing or has an impossible size; the message names it. Only processes,
// tallies and stacks are needed.
absl::StatusOr<OtherBooks> ReadOtherLayout(const Pins& pins);

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_OTHER_LAYOUT_H_
