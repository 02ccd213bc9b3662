// SPDX-License-Identifier: Apache-2.0
//
// What processes have mapped, kept up to date from the kernel's mapping events.
//
// Kept are those that somebody asked for (Keep, Hold) until they are dropped, with `follow` their children too; for
// everyone, all that began since, as long as they live: by the time it shows that a process is to be recorded, it has
// mapped most of its files.
//
// Not thread safe.
#ifndef HEAPTAP_USERSPACE_SERVICE_ADDRESS_SPACES_H_
#define HEAPTAP_USERSPACE_SERVICE_ADDRESS_SPACES_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "userspace/bpf/mapping_events.h"
#include "userspace/elf/mappings.h"

namespace heaptap::service {

struct AddressSpace {
  elf::Mappings mappings;
  std::string executable;  // path of the program: the first file that was mapped
};

class AddressSpaces {
 public:
  enum class Whose { kKept, kKeptAndChildren, kEveryone };
  explicit AddressSpaces(Whose whose) : whose_(whose) {}

  // Begins to keep a process's mappings.
  void Keep(pid_t pid, AddressSpace space);
  // Keeps what is known of a process until Drop, though it ends. False if nothing is.
  bool Hold(pid_t pid);
  // Those whose end was not heard of.
  void DropEnded();
  void Drop(pid_t pid) { spaces_.erase(pid); }
  // Drops it and gives it to the caller; null if nothing is known.
  std::shared_ptr<const AddressSpace> Take(pid_t pid);

  // Applies one event; those of processes that are not kept change nothing. True if it added a mapping.
  bool Apply(const bpf::MappingEvent& event);

  // Null if nothing is known. Valid until the next call that changes something.
  const AddressSpace* Find(pid_t pid) const;
  bool IsHeld(pid_t pid) const;
  // Processes that have this file mapped: device and inode as lists of mappings have them.
  std::vector<pid_t> WhoMapped(const elf::Mapping& file) const;

 private:
  struct Entry {
    std::shared_ptr<AddressSpace> space;  // a child's is its parent's until one of them changes
    bool is_held = false;
    bool has_execed = false;  // and mapped nothing since
  };
  static AddressSpace& OwnSpace(Entry& entry);

  Whose whose_;
  absl::flat_hash_map<pid_t, Entry> spaces_;
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_ADDRESS_SPACES_H_
