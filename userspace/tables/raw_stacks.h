// SPDX-License-Identifier: Apache-2.0
//
// Finishes the stacks that the kernel could not unwind, when the unwind tables that they need have been read.
// Not thread-safe.
#ifndef HEAPTAP_USERSPACE_TABLES_RAW_STACKS_H_
#define HEAPTAP_USERSPACE_TABLES_RAW_STACKS_H_

#include <sys/types.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "userspace/base/clock.h"
#include "userspace/bpf/unwind_maps.h"
#include "userspace/elf/mappings.h"
#include "userspace/spaces/address_spaces.h"
#include "userspace/tables/unwind_tables.h"

namespace heaptap::recording {

class RawStacks {
 public:
  // The most bytes of stacks that wait. The stacks of a process may take as many bytes as are still free: half of all
  // bytes if no other process has any, so that a newcomer finds room. Beyond this, stacks end at the code whose table
  // is missing (HEAPTAP_STACK_NO_TABLE).
  static constexpr size_t kMaxBytes = 64 << 20;
  // A stack waits this long for its tables.
  static constexpr absl::Duration kMaxWait = absl::Seconds(30);
  // A profile waits this long for stacks.
  static constexpr absl::Duration kPatience = absl::Seconds(2);

  // Both must outlive this object.
  RawStacks(bpf::UnwindMaps& maps, UnwindTables& tables) : maps_(maps), tables_(tables) {}

  // Finishes a stack now, or when its tables have been read. `space`: the mappings at the time of the stack.
  void Finish(bpf::RawStack stack, pid_t pid, std::shared_ptr<const AddressSpace> space);
  // Tries again if a table has been read since.
  void Retry();

  // Whether stacks of the process wait; and whether a profile should wait for them.
  bool IsWaiting(uint64_t process_id) const { return of_each_.contains(process_id); }
  bool IsWorthWaiting(uint64_t process_id, base::Instant now) const;
  bool empty() const { return waiting_.empty(); }

 private:
  struct Waiting {
    bpf::RawStack stack;
    pid_t pid;
    std::shared_ptr<const AddressSpace> space;
    const elf::Mapping* waits_for;  // in `space`
    base::Instant since;
  };
  // The stacks of one process that wait.
  struct OfOne {
    absl::flat_hash_map<const uint8_t*, size_t> parts;  // of their memory -> how many stacks have it
    size_t bytes = 0;
    size_t stacks = 0;
  };
  // Tries to finish a stack. Null: it is finished. Otherwise a mapping whose file is being looked at, or whose table is
  // being read.
  const elf::Mapping* TryFinish(const bpf::RawStack& stack, pid_t pid, const AddressSpace& space, bool may_wait);
  void Add(const bpf::RawStack& stack);
  void Drop(const bpf::RawStack& stack);

  bpf::UnwindMaps& maps_;
  UnwindTables& tables_;
  std::list<Waiting> waiting_;         // oldest first
  std::map<uint64_t, OfOne> of_each_;  // by process id; none without stacks
  size_t bytes_ = 0;
  uint64_t tables_read_ = 0;  // at the last Retry
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_TABLES_RAW_STACKS_H_
