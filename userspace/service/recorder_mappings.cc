// SPDX-License-Identifier: Apache-2.0
//
// What recorded processes map, and what their stacks need of it.
#include <string.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/elf/mappings.h"
#include "userspace/service/messages.h"
#include "userspace/service/recorder.h"
#include "userspace/unwind/finish.h"

namespace heaptap::service {
namespace {

// Processes can make as many as they like; to look at one again costs a system call or two.
constexpr size_t kMaxFilesSeen = 65536;

}  // namespace

void Recorder::HandleMapping(const bpf::MappingEvent& event) {
  if (!spaces_.Apply(event)) return;
  if (event.mapping.inode == 0) return;
  // Of everyone only those that are recorded need unwind tables; any may show us an allocator.
  if (spaces_.IsHeld(event.pid)) {
    const uint32_t device = KernelDevice(event.mapping);
    tables_.Enter({event.mapping.inode, device, event.generation}, event.pid, event.mapping);
    if (Target* target = FindRunning(event.pid); target != nullptr) target->is_saved = false;
  }
  LookForAllocator(event);
}

void Recorder::LookForAllocator(const bpf::MappingEvent& event) {
  const std::tuple key(KernelDevice(event.mapping), event.mapping.inode, event.generation);
  if (files_seen_.size() > kMaxFilesSeen) files_seen_.clear();
  if (!files_seen_.insert(key).second) return;
  // A short-lived process may be gone, and the next one that maps the file is as good.
  absl::StatusOr<elf::MappedFile> file = elf::OpenMapped(event.pid, event.mapping);
  if (!file.ok()) {
    files_seen_.erase(key);
    return;
  }
  const size_t files_before = probe_files_.size();
  absl::StatusOr<bool> attached = probe_files_.Attach(file->file.get(), file->path, Printable(event.mapping.path),
                                                      options_.follow ? ProbeFiles::kEveryProcess : event.pid);
  if (!attached.ok() && !absl::IsNotFound(attached.status())) {
    Say(absl::StrCat(attached.status().message(), "; this file is left out"));
  }
  if (!options_.everyone.has_value() || probe_files_.size() == files_before) return;
  // The first ones to map it were faster than we. They enter when they hit a probe; those that do not allocate any more
  // are to be seen, too.
  for (const pid_t pid : spaces_.WhoMapped(event.mapping)) {
    if (FindRunning(pid) == nullptr) RecordRunning(pid).IgnoreError();
  }
}

void Recorder::HandleTableWanted(const heaptap_event& event, const std::vector<bpf::MappingEvent>& news) {
  heaptap_file_key key;
  memcpy(&key, event.memory, sizeof(key));
  const auto enter = [&](const elf::Mapping& mapping) {
    return mapping.start <= event.argument && event.argument < mapping.end && tables_.Enter(key, event.tgid, mapping);
  };
  for (const bpf::MappingEvent& mapped : news) {
    if (mapped.kind == bpf::MappingEvent::kMap && mapped.pid == static_cast<pid_t>(event.tgid) && enter(mapped.mapping))
      return;
  }
  const AddressSpace* space = spaces_.Find(event.tgid);
  const elf::Mapping* known = space == nullptr ? nullptr : space->mappings.Find(event.argument);
  if (known != nullptr && enter(*known)) return;
  // What we know may be old, or cut where something was unmapped.
  absl::StatusOr<std::vector<elf::Mapping>> mappings = elf::ReadExecutableMappings(event.tgid);
  if (mappings.ok() && std::any_of(mappings->begin(), mappings->end(), enter)) return;
  if (mappings.ok()) {
    for (const elf::Mapping& mapping : *mappings) {
      const bool is_there = mapping.start <= event.argument && event.argument < mapping.end;
      const bool is_it = mapping.inode == key.inode && KernelDevice(mapping) == key.device;
      if (is_there && is_it) return tables_.GiveUp(key, mapping);
    }
  }
  tables_.Refuse(key);
}

void Recorder::Finish(const bpf::RawStack& raw) {
  const Target* target = FindTarget(raw.header.process_id);
  const AddressSpace* space = target == nullptr ? nullptr : Space(*target);
  if (space == nullptr) return;
  const auto find_rule = [&](uint64_t address) -> std::optional<uint32_t> {
    const elf::Mapping* mapping = space->mappings.Find(address);
    if (mapping == nullptr) return std::nullopt;
    return tables_.FindRule(*mapping, address);
  };
  books_->unwind().ReplaceStack(raw.header.stack_id, unwind::FinishStack(raw.header, raw.memory, find_rule));
}

}  // namespace heaptap::service
