// SPDX-License-Identifier: Apache-2.0
#include "userspace/service/address_spaces.h"

#include <utility>

namespace heaptap::service {

bool AddressSpaces::Apply(const bpf::MappingEvent& event) {
  if (event.kind == bpf::MappingEvent::kFork) {
    if (!follow_) return false;
    const auto parent = spaces_.find(event.parent);
    if (parent == spaces_.end()) return false;
    // One of that PID that is still there has ended unseen.
    AddressSpace copy = parent->second;
    spaces_[event.pid] = std::move(copy);
    return false;
  }
  const auto found = spaces_.find(event.pid);
  if (found == spaces_.end()) return false;
  AddressSpace& space = found->second;
  if (event.kind == bpf::MappingEvent::kExec) {
    space = AddressSpace();
    return false;
  }
  if (space.executable.empty() && event.mapping.inode != 0) space.executable = event.mapping.path;
  return space.mappings.Add(event.mapping);
}

const AddressSpace* AddressSpaces::Find(pid_t pid) const {
  const auto found = spaces_.find(pid);
  return found == spaces_.end() ? nullptr : &found->second;
}

}  // namespace heaptap::service
