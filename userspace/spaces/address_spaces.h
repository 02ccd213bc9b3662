// SPDX-License-Identifier: Apache-2.0
//
// The mappings of processes, kept up to date from the kernel's mapping events.
//
// Keep and Hold keep a process until Drop; with kKeptAndChildren its children too. A system-wide recording keeps every
// process that has begun since the recording did, as long as the process lives: by the time heaptap learns that a
// process uses a sampled allocator, the process has already mapped most of its files. The mappings of processes that
// are not held have a bound: beyond it, the processes with the most mappings are dropped, because any user can start
// processes that map thousands of files. Their mappings are read again when they enter. The held processes of one user
// have a bound too; beyond it, those with the most mappings are dropped for good, so that their profiles name no files.
//
// Not thread safe.
#ifndef HEAPTAP_USERSPACE_SPACES_ADDRESS_SPACES_H_
#define HEAPTAP_USERSPACE_SPACES_ADDRESS_SPACES_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "userspace/base/bounds.h"
#include "userspace/base/thread_checker.h"
#include "userspace/bpf/mapping_events.h"
#include "userspace/elf/mappings.h"

namespace heaptap::recording {

struct AddressSpace {
  elf::Mappings mappings;
  std::string executable;  // path of the program: the first file mapped
};

class AddressSpaces {
 public:
  // The most mappings of processes that are not held, about 400 bytes each. A thousand ordinary processes have 50,000.
  static constexpr size_t kMaxFreeMappings = 1 << 18;
  // The most mappings of held processes of one user, except root.
  static constexpr size_t kMaxMappingsOfUser = 1 << 18;

  enum class Scope { kKept, kKeptAndChildren, kSystemWide };
  explicit AddressSpaces(Scope whose) : scope_(whose) {}

  // Begins to keep a process's mappings.
  void Keep(pid_t pid, AddressSpace space);
  // Like Keep, for a process whose mappings are known as they were at `since` (nanoseconds, CLOCK_MONOTONIC).
  void Update(pid_t pid, const AddressSpace& space, uint64_t since);
  // Keeps the mappings of a process until Drop, even if it ends. False if the process is unknown.
  bool Hold(pid_t pid);
  // Says which user the process belongs to; its future children belong to the same user. None: the user is unknown. All
  // processes of unknown users share a bound.
  void SetUser(pid_t pid, std::optional<uid_t> user);
  // Drops processes whose end was missed.
  void DropEnded();
  void Drop(pid_t pid) { spaces_.erase(pid); }
  // Drops the process and returns its mappings; null if it is unknown.
  std::shared_ptr<const AddressSpace> Take(pid_t pid);

  // Applies one event; an event of an unknown process changes nothing. True if it added a mapping.
  bool Apply(const bpf::MappingEvent& event);

  // Says that an anonymous mapping of a process, which begins where `mapping` does, holds code of its file. False:
  // there is no such mapping any more.
  bool SetFile(pid_t pid, elf::Mapping mapping);
  // Says which build of its file a process has mapped there, unless that is known.
  void SetBuildId(pid_t pid, const elf::Mapping& mapping, absl::string_view build_id);

  // Null if the process is unknown. Valid until the next call that changes something.
  const AddressSpace* Find(pid_t pid) const;
  // The mappings as of now: later events do not change them.
  std::shared_ptr<const AddressSpace> Share(pid_t pid) const;
  bool IsHeld(pid_t pid) const;
  // Mappings of processes that are not held. Those that parent and child share count once.
  size_t CountFreeMappings() const;
  // The processes that have this file mapped, by device and inode as in /proc/PID/maps.
  std::vector<pid_t> ProcessesMapping(const elf::Mapping& file) const;

 private:
  struct Entry {
    std::shared_ptr<AddressSpace> space;  // shared by parent and child until one of them changes
    bool is_held = false;
    std::optional<uid_t> user = 0;  // as SetUser
    bool has_execed = false;        // and has mapped nothing since
  };
  AddressSpace& OwnSpace(Entry& entry);
  // If the processes for which `counts` is true have more than `most` mappings, drops the largest of these processes
  // until at most half of `most` mappings are left. `counter`: what is counted for each process that is dropped.
  void MakeRoom(size_t most, absl::FunctionRef<bool(const Entry&)> counts, std::optional<base::Bound> counter);
  void MakeRoom();
  size_t Count(absl::FunctionRef<bool(const Entry&)> counts) const;

  Scope scope_;
  absl::flat_hash_map<pid_t, Entry> spaces_;
  size_t new_mappings_ = 0;  // since the last MakeRoom
  base::ThreadChecker thread_;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_SPACES_ADDRESS_SPACES_H_
