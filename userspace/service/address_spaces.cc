// SPDX-License-Identifier: Apache-2.0
#include "userspace/service/address_spaces.h"

#include <errno.h>
#include <signal.h>

#include <algorithm>
#include <utility>

namespace heaptap::service {

AddressSpace& AddressSpaces::OwnSpace(Entry& entry) {
  if (entry.space.use_count() > 1) entry.space = std::make_shared<AddressSpace>(*entry.space);
  return *entry.space;
}

void AddressSpaces::Keep(pid_t pid, AddressSpace space) {
  spaces_[pid] = {.space = std::make_shared<AddressSpace>(std::move(space)), .is_held = true};
}

bool AddressSpaces::Hold(pid_t pid) {
  const auto found = spaces_.find(pid);
  if (found == spaces_.end()) return false;
  found->second.is_held = true;
  return true;
}

void AddressSpaces::DropEnded() {
  absl::erase_if(
      spaces_, [](const auto& entry) { return !entry.second.is_held && kill(entry.first, 0) != 0 && errno == ESRCH; });
}

std::shared_ptr<const AddressSpace> AddressSpaces::Take(pid_t pid) {
  const auto found = spaces_.find(pid);
  if (found == spaces_.end()) return nullptr;
  std::shared_ptr<const AddressSpace> space = std::move(found->second.space);
  spaces_.erase(found);
  return space;
}

bool AddressSpaces::Apply(const bpf::MappingEvent& event) {
  if (event.kind == bpf::MappingEvent::kFork) {
    if (scope_ == Scope::kKept) return false;
    const auto parent = spaces_.find(event.parent);
    if (parent == spaces_.end()) return false;
    // An older entry with this PID belongs to a process whose end was missed.
    const Entry copy = {.space = parent->second.space, .is_held = scope_ == Scope::kKeptAndChildren};
    spaces_[event.pid] = copy;
    return false;
  }
  auto found = spaces_.find(event.pid);
  if (event.kind == bpf::MappingEvent::kEnd) {
    // The kernel sends this event also when a set-user-ID program starts, between the exec and its first mapping,
    // because it removes the old program's perf events (begin_new_exec). A process that really ends has mappings.
    if (found != spaces_.end() && !found->second.is_held && !found->second.has_execed) spaces_.erase(found);
    return false;
  }
  if (event.kind == bpf::MappingEvent::kExec) {
    if (found != spaces_.end()) {
      found->second.space = std::make_shared<AddressSpace>();
      found->second.has_execed = true;
    } else if (scope_ == Scope::kSystemWide) {
      spaces_[event.pid] = {.space = std::make_shared<AddressSpace>(), .is_held = false, .has_execed = true};
    }
    return false;
  }
  if (found == spaces_.end()) return false;
  found->second.has_execed = false;
  AddressSpace& space = OwnSpace(found->second);
  if (space.executable.empty() && event.mapping.inode != 0) space.executable = event.mapping.path;
  return space.mappings.Add(event.mapping);
}

const AddressSpace* AddressSpaces::Find(pid_t pid) const {
  const auto found = spaces_.find(pid);
  return found == spaces_.end() ? nullptr : found->second.space.get();
}

bool AddressSpaces::IsHeld(pid_t pid) const {
  const auto found = spaces_.find(pid);
  return found != spaces_.end() && found->second.is_held;
}

std::vector<pid_t> AddressSpaces::ProcessesMapping(const elf::Mapping& file) const {
  std::vector<pid_t> pids;
  for (const auto& [pid, entry] : spaces_) {
    const elf::Mappings& mappings = entry.space->mappings;
    const bool maps = std::any_of(mappings.begin(), mappings.end(), [&](const elf::Mapping& mapping) {
      return mapping.inode == file.inode && mapping.device_major == file.device_major &&
             mapping.device_minor == file.device_minor;
    });
    if (maps) pids.push_back(pid);
  }
  return pids;
}

}  // namespace heaptap::service
