// SPDX-License-Identifier: Apache-2.0
//
// The model of a heap profile: the books of one process at one moment. All output formats are written from it.
#ifndef HEAPTAP_USERSPACE_PROFILE_PROFILE_H_
#define HEAPTAP_USERSPACE_PROFILE_PROFILE_H_

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "bpf/books.h"
#include "userspace/elf/mappings.h"
#include "userspace/profile/ages.h"
#include "userspace/profile/estimate.h"

namespace heaptap::profile {

// Whether the id stands for a named heap of the program, not for a thread (heaptap:heap_alloc in contract.h).
inline bool IsHeap(uint32_t tid) { return (tid & HEAPTAP_HEAP_TID) != 0; }

// The share of one thread in a context. A block counts for the thread that allocated it, whichever thread frees it.
struct ThreadShare {
  uint32_t tid = 0;  // in the first PID namespace; or IsHeap
  Estimate live = {};
  Estimate allocated = {};  // since recording began, freed or not

  friend bool operator==(const ThreadShare&, const ThreadShare&) = default;
};

// Live blocks of one size and a similar age, which one thread allocated.
struct BlockShare {
  uint32_t tid = 0;
  uint64_t size = 0;  // bytes of each
  uint32_t age = 0;   // kAges, or kUnknownAge
  Estimate live = {};

  friend bool operator==(const BlockShare&, const BlockShare&) = default;
};

// A call path that allocated.
struct Context {
  // Return addresses in the process's address space, innermost first, without the frames of the allocator. In a frame
  // that a signal interrupted: the address of the next instruction plus 1. Empty: the path is unknown.
  std::vector<uint64_t> frames = {};
  bool truncated = false;                 // outer frames are missing
  std::vector<ThreadShare> threads = {};  // by tid, each once
  // The live blocks in more detail, by tid, size and age, each once. Empty in most profiles (HasBlocks). Read a moment
  // before `threads`, so that the sums may differ.
  std::vector<BlockShare> blocks = {};
  // In a profile without allocated estimates (Profile::has_allocated): the number of samples, live or freed; 0:
  // unknown.
  uint64_t allocated_samples = 0;

  // The sums over `threads`.
  Estimate Live() const;
  Estimate Allocated() const;
};

// Live estimates as whole numbers.
struct LeakSummary {
  uint64_t bytes = 0;
  uint64_t objects = 0;
  uint64_t contexts = 0;  // with live objects
};

// Numbers of samples by the end of their stack (enum heaptap_stack_end), and of those without a stack.
struct StackEnds {
  std::array<uint64_t, HEAPTAP_STACK_ENDS> samples = {};
  uint64_t without_stack = 0;
};

struct Profile {
  pid_t pid = 0;
  uint64_t period = 1;                      // mean bytes between samples: 1 << lg_sample
  bool several_periods = false;             // some samples were taken at other intervals, as far as that is known
  bool has_allocated = true;                // false: only live memory is known, as for a moment of the history
  bool raw = false;                         // in formats whose readers correct for sampling, write uncorrected numbers
  std::vector<Context> contexts = {};       // no two with the same frames
  std::vector<elf::Mapping> mappings = {};  // executable ones, by address
  std::map<uint32_t, std::string> thread_names = {};  // by tid; chosen by the process, so with any bytes
  StackEnds stack_ends = {};
  std::vector<std::string> warnings = {};  // one sentence each: what is missing in the profile, and why
  std::optional<absl::Time> time = {};     // when it was taken; none: unknown

  // The sums over all contexts.
  Estimate Live() const;
  Estimate Allocated() const;
  std::vector<ThreadShare> Threads() const;  // by tid
  bool HasBlocks() const;
  LeakSummary Leaks() const;
};

}  // namespace heaptap::profile

#endif  // HEAPTAP_USERSPACE_PROFILE_PROFILE_H_
