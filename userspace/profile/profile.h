// SPDX-License-Identifier: Apache-2.0
//
// The model of a heap profile: what the books of one process say, at one moment. Writers of all formats start here.
#ifndef HEAPTAP_USERSPACE_PROFILE_PROFILE_H_
#define HEAPTAP_USERSPACE_PROFILE_PROFILE_H_

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bpf/books.h"
#include "userspace/elf/mappings.h"
#include "userspace/profile/estimate.h"

namespace heaptap::profile {

// What one thread allocated in one context. A block counts for the thread that allocated it, whoever frees it.
struct ThreadShare {
  uint32_t tid = 0;  // in the first PID namespace
  Estimate live = {};
  Estimate allocated = {};  // since recording began, freed or not

  friend bool operator==(const ThreadShare&, const ThreadShare&) = default;
};

// One call path that allocated.
struct Context {
  // Innermost first. Return addresses in the process's address space; the allocator's own frames are cut away. Empty:
  // the path is not known.
  std::vector<uint64_t> frames = {};
  bool truncated = false;                 // outer frames are missing
  std::vector<ThreadShare> threads = {};  // by tid, each once

  // The sums over `threads`.
  Estimate Live() const;
  Estimate Allocated() const;
};

// What lives at this moment, as whole numbers.
struct LeakSummary {
  uint64_t bytes = 0;
  uint64_t objects = 0;
  uint64_t contexts = 0;  // with live objects
};

// Samples by how their stacks ended (enum heaptap_stack_end), and those that have no stack at all.
struct StackEnds {
  std::array<uint64_t, HEAPTAP_STACK_ENDS> samples = {};
  uint64_t without_stack = 0;
};

struct Profile {
  pid_t pid = 0;
  uint64_t period = 1;                                // mean bytes between samples: 1 << lg_sample
  bool raw = false;                                   // where readers correct for sampling, leave all of that to them
  std::vector<Context> contexts = {};                 // no two with the same frames
  std::vector<elf::Mapping> mappings = {};            // executable ones, by address
  std::map<uint32_t, std::string> thread_names = {};  // by tid; the process chose them, so any byte may be in them
  StackEnds stack_ends = {};
  std::vector<std::string> warnings = {};  // what is not in here and why, a sentence each

  // The sums over all contexts.
  Estimate Live() const;
  Estimate Allocated() const;
  std::vector<ThreadShare> Threads() const;  // by tid
  LeakSummary Leaks() const;
};

}  // namespace heaptap::profile

#endif  // HEAPTAP_USERSPACE_PROFILE_PROFILE_H_
