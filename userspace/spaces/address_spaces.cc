// SPDX-License-Identifier: Apache-2.0
#include "userspace/spaces/address_spaces.h"

#include <errno.h>
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "userspace/base/clock.h"
#include "userspace/base/user_ids.h"

namespace heaptap::recording {

namespace {

// Counting takes time, so it is done only after this many new mappings.
constexpr size_t kCountAfter = AddressSpaces::kMaxFreeMappings / 8;

}  // namespace

AddressSpace& AddressSpaces::OwnSpace(Entry& entry) {
  if (entry.space.use_count() > 1) {
    entry.space = std::make_shared<AddressSpace>(*entry.space);
    new_mappings_ += entry.space->mappings.size();
  }
  return *entry.space;
}

size_t AddressSpaces::Count(absl::FunctionRef<bool(const Entry&)> counts) const {
  absl::flat_hash_map<const AddressSpace*, size_t> sizes;
  for (const auto& [pid, entry] : spaces_) {
    if (counts(entry)) sizes[entry.space.get()] = entry.space->mappings.size();
  }
  size_t sum = 0;
  for (const auto& [space, size] : sizes) sum += size;
  return sum;
}

size_t AddressSpaces::CountFreeMappings() const {
  return Count([](const Entry& entry) { return !entry.is_held; });
}

void AddressSpaces::MakeRoom(size_t most, absl::FunctionRef<bool(const Entry&)> counts,
                             std::optional<base::Bound> counter) {
  size_t sum = Count(counts);
  if (sum <= most) return;
  std::vector<std::pair<size_t, pid_t>> largest;
  for (const auto& [pid, entry] : spaces_) {
    if (counts(entry)) largest.emplace_back(entry.space->mappings.size(), pid);
  }
  std::sort(largest.rbegin(), largest.rend());
  for (const auto& [size, pid] : largest) {
    const auto found = spaces_.find(pid);
    // A shared space goes away with the last process that has it.
    if (found->second.space.use_count() == 1) sum -= size;
    spaces_.erase(found);
    if (counter.has_value()) base::CountBeyond(*counter);
    if (sum <= most / 2) return;
  }
}

void AddressSpaces::MakeRoom() {
  new_mappings_ = 0;
  MakeRoom(kMaxFreeMappings, [](const Entry& entry) { return !entry.is_held; }, {});
  std::set<std::optional<uid_t>> users;
  for (const auto& [pid, entry] : spaces_) {
    if (entry.is_held && entry.user != base::kRoot) users.insert(entry.user);
  }
  for (const std::optional<uid_t> user : users) {
    MakeRoom(
        kMaxMappingsOfUser, [&](const Entry& entry) { return entry.is_held && entry.user == user; },
        base::Bound::kMappings);
  }
}

void AddressSpaces::SetUser(pid_t pid, std::optional<uid_t> user) {
  if (const auto found = spaces_.find(pid); found != spaces_.end()) found->second.user = user;
}

void AddressSpaces::Keep(pid_t pid, AddressSpace space) {
  const base::OneThread one_thread(thread_);
  spaces_[pid] = {.space = std::make_shared<AddressSpace>(std::move(space)), .is_held = true};
}

void AddressSpaces::Update(pid_t pid, const AddressSpace& space, uint64_t since) {
  const base::OneThread one_thread(thread_);
  const auto found = spaces_.find(pid);
  if (found == spaces_.end()) return Keep(pid, space);
  found->second.is_held = true;
  AddressSpace& own = OwnSpace(found->second);
  if (!space.executable.empty()) own.executable = space.executable;
  const uint64_t now = base::Now().nanoseconds();
  for (const elf::Mapping& mapping : space.mappings) own.mappings.Add(mapping, {.since = since, .time = now});
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
  const base::OneThread one_thread(thread_);
  if (event.kind == bpf::MappingEvent::kFork) {
    if (scope_ == Scope::kKept) return false;
    const auto parent = spaces_.find(event.parent);
    if (parent == spaces_.end()) return false;
    // An older entry with this PID belongs to a process whose end was missed.
    const Entry copy = {
        .space = parent->second.space, .is_held = scope_ == Scope::kKeptAndChildren, .user = parent->second.user};
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
  const bool is_added =
      space.mappings.Add(event.mapping, {.since = event.since == 0 ? event.time : event.since, .time = event.time});
  if (is_added && ++new_mappings_ >= kCountAfter) MakeRoom();
  return is_added;
}

bool AddressSpaces::SetFile(pid_t pid, elf::Mapping mapping) {
  const auto found = spaces_.find(pid);
  if (found == spaces_.end()) return false;
  const elf::Mapping* known = found->second.space->mappings.Find(mapping.start);
  if (known == nullptr || known->start != mapping.start || known->inode != 0) return false;
  mapping.end = std::min(mapping.end, known->end);
  return OwnSpace(found->second).mappings.Add(std::move(mapping));
}

void AddressSpaces::SetBuildId(pid_t pid, const elf::Mapping& mapping, absl::string_view build_id) {
  const auto found = spaces_.find(pid);
  if (found == spaces_.end() || build_id.empty()) return;
  const elf::Mappings& mappings = found->second.space->mappings;
  const elf::Mapping* known = mappings.Find(mapping.start);
  const bool is_known = known == nullptr || !known->build_id.empty();
  if (is_known && mappings.former().empty()) return;
  OwnSpace(found->second).mappings.SetBuildId(mapping, build_id);
}

std::shared_ptr<const AddressSpace> AddressSpaces::Share(pid_t pid) const {
  const auto found = spaces_.find(pid);
  return found == spaces_.end() ? nullptr : found->second.space;
}

const AddressSpace* AddressSpaces::Find(pid_t pid) const {
  const base::OneThread one_thread(thread_);
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

}  // namespace heaptap::recording
