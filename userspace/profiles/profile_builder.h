// SPDX-License-Identifier: Apache-2.0
//
// Builds a profile of one process from the kernel's books. Thread-safe, also while another thread uses the books.
#ifndef HEAPTAP_USERSPACE_PROFILES_PROFILE_BUILDER_H_
#define HEAPTAP_USERSPACE_PROFILES_PROFILE_BUILDER_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "userspace/bpf/entries.h"
#include "userspace/bpf/other_layout.h"
#include "userspace/profile/frames.h"
#include "userspace/profile/profile.h"
#include "userspace/profiles/live_blocks.h"
#include "userspace/spaces/address_spaces.h"

namespace heaptap::recording {

// The subject of a profile: what the profile needs besides the books.
struct ProfileSubject {
  pid_t pid;
  uint64_t process_id;  // of the books
  uint32_t lg_sample;
  profile::AddressRange allocator;   // the allocator's code according to its control block; empty without one
  const AddressSpace* space;         // may be null
  uint32_t max_frames = UINT32_MAX;  // most frames of the program in a context
  bool raw = false;                  // profile::Profile::raw
  uint32_t user = 0;                 // the slot of its user (bpf/users.bpf.h); 0: root, or unknown
};

// The system's names of the given threads that are alive.
using NameLiving = std::function<std::map<uint32_t, std::string>(absl::Span<const uint32_t> tids)>;

// The names of threads: the name that the program gave a thread, else the system's name, now or when the thread ended.
// "": unknown. A heap has a name like heap:"arena 1". Names may hold any byte. `name_living`: null if nobody knows
// which threads are alive.
std::map<uint32_t, std::string> ThreadNames(const bpf::Entries& entries, uint64_t process_id,
                                            const std::set<uint32_t>& tids, const NameLiving& name_living);

// The tallies of one process.
struct OwnTallies {
  std::vector<bpf::TallyEntry> tallies;
  absl::Duration cost = {};  // their share in the time for reading the map: the user is not to blame for the rest
};
absl::StatusOr<OwnTallies> ReadOwnTallies(const bpf::Entries& entries, uint64_t process_id);

// The program's part of a stack.
struct StackFrames {
  std::vector<uint64_t> frames = {};  // as in profile::Context
  uint32_t end = HEAPTAP_STACK_UNFINISHED;
};
// Without frames if there is no such stack.
StackFrames ProgramFrames(const bpf::Entries& entries, const ProfileSubject& subject, uint64_t stack_id);

// Builds a profile from the tallies of a process, which may have ended. Its threads have the names that the kernel has
// kept. Losses become warnings. `mappings_lost`: the number of mapping events that the kernel dropped. `blocks`: read
// before the tallies; null: the profile has none.
profile::Profile BuildProfile(const bpf::Entries& entries, const ProfileSubject& subject,
                              std::vector<bpf::TallyEntry> tallies, uint64_t mappings_lost,
                              const LiveBlocks* blocks = nullptr);

// Builds a profile from the books of another build of heaptap.
profile::Profile BuildOtherProfile(const bpf::OtherBooks& books, const ProfileSubject& subject);

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_PROFILES_PROFILE_BUILDER_H_
