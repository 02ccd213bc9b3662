// SPDX-License-Identifier: Apache-2.0
//
// The last books of another build of heaptap: what its collector left pinned, whatever the maps look like.
//
// Fields are found by the names that bpf/books.h gives them; sizes, order and neighbours may differ. What
// numbers mean (flags, ends of stacks, reasons of losses) must be as it is there: numbers are added, never given anew.
// Nothing here changes the maps. Not thread safe.
#ifndef HEAPTAP_USERSPACE_BPF_OTHER_LAYOUT_H_
#define HEAPTAP_USERSPACE_BPF_OTHER_LAYOUT_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/bpf/books.h"
#include "userspace/bpf/pins.h"

namespace heaptap::bpf {

struct OtherProcess {
  uint64_t process_id = 0;
  pid_t tgid = 0;
  uint32_t flags = 0;  // HEAPTAP_PROCESS_*
  bool ended = false;  // and nobody was told; the PID may be another process's by now
};

struct OtherStack {
  std::vector<uint64_t> frames;  // as in heaptap_stack, HEAPTAP_MAX_FRAMES at most
  uint32_t end = 0;              // enum heaptap_stack_end; TRUNCATED too if frames went or the number is unknown
};

struct OtherBooks {
  // Without those that share their parent's books. Of what they did after the stop, ending included, nobody was told.
  std::vector<OtherProcess> processes;
  // By process id. A process that is not among `processes` has ended, and its PID is not known.
  std::map<uint64_t, std::vector<TallyEntry>> tallies;
  // Those that tallies name, by stack id; some may be missing.
  std::map<uint64_t, OtherStack> stacks;
  // By process id; 0: losses that no process could be blamed for. Without reasons that are unknown here.
  std::map<uint64_t, Losses> losses;
};

constexpr absl::Duration kLongestDetach = absl::Seconds(5);

// Ends what still writes into the maps: removes the pins of links and programs, and waits until the kernel has detached
// the programs, which takes it some RCU grace periods. The maps stay pinned. DeadlineExceeded: it has not, because
// somebody else holds them, or because there are so many; books that are read then may be a little off.
absl::Status StopOtherLayout(const Pins& pins, absl::Duration longest = kLongestDetach);

// To be called when the programs have stopped. Leaves out processes whose books were closed. FailedPrecondition: a map
// or a field is missing, or of an impossible size; the message names it. Maps other than processes, tallies and stacks
// may be missing.
absl::StatusOr<OtherBooks> ReadOtherLayout(const Pins& pins);

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_OTHER_LAYOUT_H_
