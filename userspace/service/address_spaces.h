// SPDX-License-Identifier: Apache-2.0
//
// What the recorded processes have mapped, kept up to date from the kernel's mapping events.
//
// Not thread safe.
#ifndef HEAPTAP_USERSPACE_SERVICE_ADDRESS_SPACES_H_
#define HEAPTAP_USERSPACE_SERVICE_ADDRESS_SPACES_H_

#include <sys/types.h>

#include <string>

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
  // With `follow`, the children of kept processes are kept too.
  explicit AddressSpaces(bool follow) : follow_(follow) {}

  // Begins to keep a process's mappings.
  void Keep(pid_t pid, AddressSpace space) { spaces_[pid] = std::move(space); }
  void Drop(pid_t pid) { spaces_.erase(pid); }

  // Applies one event; those of processes that are not kept change nothing. True if it added a mapping.
  bool Apply(const bpf::MappingEvent& event);

  // Null if the process is not kept. Valid until the next call that changes something.
  const AddressSpace* Find(pid_t pid) const;

 private:
  bool follow_;
  absl::flat_hash_map<pid_t, AddressSpace> spaces_;
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_ADDRESS_SPACES_H_
