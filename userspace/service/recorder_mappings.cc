// SPDX-License-Identifier: Apache-2.0
//
// What recorded processes map, and what their stacks need of it.
#include <fcntl.h>
#include <string.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/elf/mappings.h"
#include "userspace/service/control_block.h"
#include "userspace/service/messages.h"
#include "userspace/service/recorder.h"
#include "userspace/unwind/finish.h"

namespace heaptap::service {
namespace {

// Processes can make as many as they like; to look at one again costs a system call or two.
constexpr size_t kMaxFilesSeen = 65536;

// Files that are read at a time.
constexpr size_t kMaxReadAhead = 64;

// Any user can make as many files with bad notes as he likes.
constexpr size_t kMaxRefusalsSaid = 100;
// So long a file that is in no process any more may stay busy. A shorter time would do a program no good that runs time
// and again: the first samples of a file that is not attached to are missed.
constexpr absl::Duration kReleaseInterval = absl::Seconds(10);

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

void Recorder::ReadAhead(const std::vector<std::string>& paths) {
  std::vector<elf::FileDescriptor> files;
  std::vector<int> numbers;
  for (const std::string& path : paths) {
    elf::FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file.valid()) continue;
    numbers.push_back(file.get());
    files.push_back(std::move(file));
  }
  tables_.ReadAhead(numbers);
}

void Recorder::ReadAhead(const std::vector<bpf::MappingEvent>& events) {
  std::vector<elf::MappedFile> files;
  std::vector<int> numbers;
  std::set<std::pair<uint32_t, uint64_t>> seen;  // device and inode
  for (const bpf::MappingEvent& event : events) {
    if (event.kind != bpf::MappingEvent::kMap || event.mapping.inode == 0 || !spaces_.IsHeld(event.pid)) continue;
    const uint32_t device = KernelDevice(event.mapping);
    if (tables_.IsEntered({event.mapping.inode, device, event.generation})) continue;
    if (files.size() == kMaxReadAhead || !seen.insert({device, event.mapping.inode}).second) continue;
    absl::StatusOr<elf::MappedFile> file = elf::OpenMapped(event.pid, event.mapping);
    if (!file.ok()) continue;
    numbers.push_back(file->file.get());
    files.push_back(*std::move(file));
  }
  tables_.ReadAhead(numbers);
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
  const size_t files_before = probe_files_.files().size();
  absl::StatusOr<bool> attached = probe_files_.Attach(file->file.get(), file->path, Printable(event.mapping.path),
                                                      options_.follow ? ProbeFiles::kEveryProcess : event.pid);
  if (!attached.ok() && !absl::IsNotFound(attached.status())) {
    if (++files_refused_ <= kMaxRefusalsSaid) {
      Say(absl::StrCat(attached.status().message(), "; this file is left out",
                       files_refused_ < kMaxRefusalsSaid ? "" : ", others like it without a word"));
    }
  }
  if (!options_.everyone.has_value() || probe_files_.files().size() == files_before) return;
  // The first ones to map it were faster than we. They enter when they hit a probe; those that do not allocate any more
  // are to be seen, too.
  for (const pid_t pid : spaces_.WhoMapped(event.mapping)) {
    const Target* target = FindRunning(pid);
    if (target == nullptr) {
      RecordRunning(pid).IgnoreError();
    } else if (!target->started) {
      // It is recorded since an exec, but its start was missed.
      newcomers_.insert(target->process_id);
    }
  }
}

void Recorder::ReleaseFiles(absl::Time now) {
  if (now - files_looked_at_ < kReleaseInterval || probe_files_.IsReleasing()) return;
  files_looked_at_ = now;
  std::set<ProbeFiles::File> unused = probe_files_.files();
  std::erase_if(unused, [&](ProbeFiles::File file) {
    if (files_kept_.contains(file)) return true;
    const auto mapped = files_mapped_.find(file);
    return mapped != files_mapped_.end() && !spaces_.WhoMapped(mapped->second).empty();
  });
  if (unused.empty()) return;
  // Processes that we know nothing of, and other overlay file systems over the same file.
  std::set<std::pair<uint32_t, uint64_t>> seen;  // device and inode
  for (const pid_t pid : AllProcesses()) {
    const absl::StatusOr<std::vector<elf::Mapping>> mappings = elf::ReadExecutableMappings(pid);
    if (!mappings.ok()) continue;
    for (const elf::Mapping& mapping : *mappings) {
      if (mapping.inode == 0 || seen.contains({KernelDevice(mapping), mapping.inode})) continue;
      const absl::StatusOr<elf::MappedFile> opened = elf::OpenMapped(pid, mapping);
      if (!opened.ok()) continue;
      seen.insert({KernelDevice(mapping), mapping.inode});
      const std::optional<ProbeFiles::File> file = probe_files_.Find(opened->file.get());
      if (file.has_value() && unused.erase(*file) != 0) files_mapped_[*file] = mapping;
    }
  }
  if (unused.empty()) return;
  probe_files_.Release(unused);
  for (const ProbeFiles::File file : unused) files_mapped_.erase(file);
  // Whoever maps one of them from now on makes it known anew.
  files_seen_.clear();
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

void Recorder::AnswerTables(Target& target, uint32_t asked) {
  if (target.control_address == 0 || target.foreign) return;
  // A process that has ended in the meantime waits no longer.
  WithMemory(target, [address = target.control_address, asked](const ProcessHandle& handle) {
    return WriteTablesReady(handle, address, asked);
  }).IgnoreError();
}

void Recorder::EnterMapped(pid_t pid, const elf::Mapping& mapping) {
  absl::StatusOr<elf::MappedFile> file = elf::OpenMapped(pid, mapping);
  if (!file.ok()) file = elf::OpenByPath(mapping);
  if (file.ok()) tables_.PrepareMapped(file->file.get(), mapping);
}

void Recorder::Finish(const bpf::RawStack& raw) {
  const Target* target = FindTarget(raw.header.process_id);
  const AddressSpace* space = target == nullptr ? nullptr : Space(*target);
  if (space == nullptr) return;
  const auto find_rule = [&](uint64_t address) -> std::optional<uint32_t> {
    const elf::Mapping* mapping = space->mappings.Find(address);
    if (mapping == nullptr) return std::nullopt;
    // The kernel has asked for the first table that it missed; the stack may go through others.
    if (mapping->inode != 0 && !tables_.HasFileOf(*mapping)) EnterMapped(target->pid, *mapping);
    return tables_.FindRule(*mapping, address);
  };
  books_->unwind().ReplaceStack(raw.header.stack_id, unwind::FinishStack(raw.header, raw.memory, find_rule));
}

}  // namespace heaptap::service
