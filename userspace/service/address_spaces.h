// SPDX-License-Identifier: Apache-2.0
//
// The mappings of processes, kept up to date from the kernel's mapping events.
//
// Keep and Hold keep a process until Drop; with kKeptAndChildren its children too. A system-wide recording keeps every
// process that has begun since, as long as it lives: a process has mapped most of its files by the time heaptap learns
// that it uses a sampled allocator.
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
  std::string executable;  // path of the program: the first file mapped
};

class AddressSpaces {
 public:
  enum class Scope { kKept, kKeptAndChildren, kSystemWide };
  explicit AddressSpaces(Scope whose) : scope_(whose) {}

  // Begins to keep a process's mappings.
  void Keep(pid_t pid, AddressSpace space);
  // Keeps the mappings of a process until Drop, even if it ends. False if the process is unknown.
  bool Hold(pid_t pid);
  // Drops processes whose end was missed.
  void DropEnded();
  void Drop(pid_t pid) { spaces_.erase(pid); }
  // Drops the process and returns its mappings; null if it is unknown.
  std::shared_ptr<const AddressSpace> Take(pid_t pid);

  // Applies one event; an event of an unknown process changes nothing. True if it added a mapping.
  bool Apply(const bpf::MappingEvent& event);

  // Null if the process is unknown. Valid until the next call that changes something.
  const AddressSpace* Find(pid_t pid) const;
  bool IsHeld(pid_t pid) const;
  // The processes that have this file mapped, by device and inode as in /proc/PID/maps.
  std::vector<pid_t> ProcessesMapping(const elf::Mapping& file) const;

 private:
  struct Entry {
    std::shared_ptr<AddressSpace> space;  // shared by parent and child until one of them changes
    bool is_held = false;
    bool has_execed = false;  // and has mapped nothing since
  };
  static AddressSpace& OwnSpace(Entry& entry);

  Scope scope_;
  absl::flat_hash_map<pid_t, Entry> spaces_;
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_ADDRESS_SPACES_H_
