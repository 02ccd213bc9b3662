// SPDX-License-Identifier: Apache-2.0
//
// Handles the mappings of recorded processes: finds allocators, enters unwind tables, and finishes raw stacks.
#include <errno.h>
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

// A bound, because processes can create any number of files. Checking one again costs a system call or two.
constexpr size_t kMaxFilesSeen = 65536;

// Files that are read at once.
constexpr size_t kMaxReadAhead = 64;

// A bound, because any user can create any number of files with bad notes.
constexpr size_t kMaxRefusalsReported = 100;
// How long an unmapped file may stay busy. Shorter times would hurt a program that is started again and again, because
// the first samples through an unattached file are missed.
constexpr absl::Duration kReleaseInterval = absl::Seconds(10);

}  // namespace

void Recorder::HandleMapping(const bpf::MappingEvent& event) {
  if (!spaces_.Apply(event)) return;
  if (event.mapping.inode == 0) return;
  // Only recorded processes need unwind tables, but any process may map an allocator.
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

absl::StatusOr<bool> Recorder::AttachFile(const std::string& path) {
  elf::FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return absl::NotFoundError(absl::StrCat("cannot open ", path, ": ", strerror(errno)));
  tables_.Prepare(file.get(), path);
  absl::StatusOr<bool> attached =
      probe_files_.Attach(file.get(), absl::StrCat("/proc/self/fd/", file.get()), path, ProbeFiles::kEveryProcess);
  if (const std::optional<ProbeFiles::File> kept = probe_files_.Find(file.get())) files_kept_.insert(*kept);
  return attached;
}

void Recorder::LookForAllocator(const bpf::MappingEvent& event) {
  const std::tuple key(KernelDevice(event.mapping), event.mapping.inode, event.generation);
  if (files_seen_.size() > kMaxFilesSeen) files_seen_.clear();
  if (!files_seen_.insert(key).second) return;
  // A short-lived process may be gone; the next one that maps the file serves as well.
  absl::StatusOr<elf::MappedFile> file = elf::OpenMapped(event.pid, event.mapping);
  if (!file.ok()) {
    files_seen_.erase(key);
    return;
  }
  const size_t files_before = probe_files_.files().size();
  absl::StatusOr<bool> attached = probe_files_.Attach(file->file.get(), file->path, Printable(event.mapping.path),
                                                      options_.follow ? ProbeFiles::kEveryProcess : event.pid);
  if (!attached.ok() && !absl::IsNotFound(attached.status())) {
    if (++files_refused_ <= kMaxRefusalsReported) {
      Say(absl::StrCat(attached.status().message(), "; this file is skipped",
                       files_refused_ < kMaxRefusalsReported ? "" : ", and further ones without a message"));
    }
  }
  if (!options_.system_wide.has_value() || probe_files_.files().size() == files_before) return;
  // Some processes mapped the file before the probes were attached. They enter when they hit a probe, but those that no
  // longer allocate must be recorded too.
  for (const pid_t pid : spaces_.ProcessesMapping(event.mapping)) {
    const Target* target = FindRunning(pid);
    if (target == nullptr) {
      RecordRunning(pid).IgnoreError();
    } else if (!target->started) {
      // Recorded since an exec, but its heaptap:start was missed.
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
    return mapped != files_mapped_.end() && !spaces_.ProcessesMapping(mapped->second).empty();
  });
  if (unused.empty()) return;
  // Looks at all processes: some are unknown here, and overlay file systems show a file under other numbers.
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
  // The next process that maps one of them makes it attached again.
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
  // The known mappings may be outdated: unmapping sends no event.
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
  // Fails if the process has ended; then it no longer waits.
  WithMemory(target, [address = target.control_address, asked](const ProcessHandle& handle) {
    return WriteTablesReady(handle, address, asked);
  }).IgnoreError();
}

// Called only for processes that will be recorded: most processes have no sampled allocator.
void Recorder::PrepareTables(pid_t pid, const std::vector<elf::Mapping>& mappings) {
  std::set<std::pair<uint32_t, uint64_t>> seen;  // device and inode
  for (const elf::Mapping& mapping : mappings) {
    if (mapping.inode == 0 || !seen.insert({KernelDevice(mapping), mapping.inode}).second) continue;
    const absl::StatusOr<elf::MappedFile> file = elf::OpenMapped(pid, mapping);
    if (file.ok()) tables_.PrepareMapped(file->file.get(), mapping);
  }
}

void Recorder::EnterMapped(pid_t pid, const elf::Mapping& mapping) {
  absl::StatusOr<elf::MappedFile> file = elf::OpenMapped(pid, mapping);
  if (!file.ok()) file = elf::OpenByPath(mapping);
  if (file.ok()) tables_.PrepareMapped(file->file.get(), mapping);
}

void Recorder::FinishRawStack(const bpf::RawStack& raw) {
  const Target* target = FindTarget(raw.header.process_id);
  const AddressSpace* space = target == nullptr ? nullptr : Space(*target);
  if (space == nullptr) return;
  const auto find_rule = [&](uint64_t address) -> std::optional<uint32_t> {
    const elf::Mapping* mapping = space->mappings.Find(address);
    if (mapping == nullptr) return std::nullopt;
    // The kernel asks only for the first missing table; the stack may need others.
    if (mapping->inode != 0 && !tables_.HasFileOf(*mapping)) EnterMapped(target->pid, *mapping);
    return tables_.FindRule(*mapping, address);
  };
  books_->unwind().ReplaceStack(raw.header.stack_id, unwind::FinishStack(raw.header, raw.memory, find_rule));
}

}  // namespace heaptap::service
