// SPDX-License-Identifier: Apache-2.0
//
// From the kernel's books to a profile of one process.
#ifndef HEAPTAP_USERSPACE_SERVICE_PROFILE_BUILDER_H_
#define HEAPTAP_USERSPACE_SERVICE_PROFILE_BUILDER_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/bpf/books.h"
#include "userspace/bpf/other_layout.h"
#include "userspace/profile/frames.h"
#include "userspace/profile/profile.h"
#include "userspace/service/address_spaces.h"

namespace heaptap::service {

// What a profile says of a process besides its books.
struct ProfileSubject {
  pid_t pid;
  uint64_t process_id;  // of the books
  uint32_t lg_sample;
  profile::AddressRange allocator;   // the allocator's code as its control block names it; empty if it has none
  const AddressSpace* space;         // may be null
  uint32_t max_frames = UINT32_MAX;  // of the program's, in a context
  bool raw = false;                  // profile::Profile::raw
};

// What a thread of the process is called: by the program, or else by the system, now or when it ended. "": nobody
// knows. Any byte may be in it.
std::string ThreadName(const bpf::Books& books, const ProfileSubject& subject, uint32_t tid);

// The program's part of a stack.
struct StackFrames {
  std::vector<uint64_t> frames = {};  // as profile::Context has them
  uint32_t end = HEAPTAP_STACK_UNFINISHED;
};
// Without frames if there is no such stack.
StackFrames ProgramFrames(const bpf::Books& books, const ProfileSubject& subject, uint64_t stack_id);

// Makes a profile of the tallies of a process, which may be running or dead. Losses become warnings. `mappings_lost`:
// how many mapping events the kernel had no room for.
profile::Profile BuildProfile(const bpf::Books& books, const ProfileSubject& subject,
                              std::vector<bpf::TallyEntry> tallies, uint64_t mappings_lost);

// The same of books that another build of heaptap kept.
profile::Profile BuildOtherProfile(const bpf::OtherBooks& books, const ProfileSubject& subject);

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_PROFILE_BUILDER_H_
