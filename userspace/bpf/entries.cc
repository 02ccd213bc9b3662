// SPDX-License-Identifier: Apache-2.0
//
// The texts of the entries.
#include "userspace/bpf/entries.h"

namespace heaptap::bpf {
namespace {

struct LossText {
  absl::string_view name;
  absl::string_view description;
};

constexpr LossText kLossTexts[HEAPTAP_LOSS_REASONS] = {
    {"none", "nothing lost"},
    {"live_full", "samples not recorded: map of live objects full, see --map-size live=N"},
    {"tallies_full", "samples not recorded: map of tallies full, see --map-size tallies=N"},
    {"bad_sample", "samples not recorded: impossible size or weight"},
    {"stacks_full", "samples without stack: map of stacks full, see --map-size stacks=N"},
    {"stack_collision", "samples without stack: stack ids collide"},
    {"scratch_busy", "samples without stack: no scratch buffer free"},
    {"missed_free", "frees missed: an address was allocated twice"},
    {"events_full", "events lost: ring buffer full, see --map-size events=BYTES"},
    {"processes_full", "processes not recorded: map of processes full, see --map-size processes=N"},
    {"files_full", "files counted as without unwind tables: map of files full, see --map-size files=N"},
    {"live_share", "samples not recorded: the process has used up its share of the map of live objects, see max-live"},
    {"tallies_share",
     "samples not recorded: the process has used up its share of the map of tallies, see max-contexts"},
    {"frees_unread", "ends without the latest frees: of each thread up to 63 freed blocks count as live"},
    {"beginning", "beginning of the process not recorded: what it had allocated before is missing"},
    {"no_memory", "samples not recorded: a limit of the process left no memory for them"},
    {"processes_share",
     "processes not recorded: their user has used up its share of new processes per second or of the map of processes"},
};

static_assert(HEAPTAP_MAX_WALK == 1024);  // as the texts say
constexpr absl::string_view kEndTexts[HEAPTAP_STACK_ENDS] = {
    "the outermost frame",
    "the 1024th frame, the last that is followed",
    "a return address outside of all code",
    "code without readable unwind information and without frame pointers",
    "stack memory that could not be read",
    "a register whose value is unknown",
    "a caller below its callee",
    "an unwind table not loaded yet and no room for a raw stack, see --map-size raw-stacks=BYTES",
    "the end of the raw stack's copy",
    "an unwind table not loaded yet when the raw stack had to be dropped",
    "an unwind table not loaded yet",
};

}  // namespace

absl::string_view LossDescription(uint32_t reason) { return kLossTexts[reason].description; }
absl::string_view LossName(uint32_t reason) { return kLossTexts[reason].name; }
absl::string_view StackEndDescription(uint32_t end) { return kEndTexts[end]; }

}  // namespace heaptap::bpf
