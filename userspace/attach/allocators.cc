// SPDX-License-Identifier: Apache-2.0
#include "userspace/attach/allocators.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <iterator>
#include <memory>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/messages.h"
#include "userspace/bpf/file_key.h"
#include "userspace/process/control_block.h"
#include "userspace/process/facts.h"
#include "userspace/process/handle.h"
#include "userspace/process/proc_files.h"

namespace heaptap::recording {
namespace {

// A bound, because processes can create any number of files. Checking one again costs a system call or two.
constexpr size_t kMaxFilesSeen = 65536;

// A bound, because any user can create any number of files with bad notes.
constexpr size_t kMaxFilesReported = 100;

// How long an unmapped file stays busy (but see IdleFiles). Shorter times would hurt a program that is started again
// and again, because the first samples through an unattached file are missed.
constexpr absl::Duration kReleaseInterval = absl::Seconds(10);

// The most processes that a search looks at together.
constexpr size_t kMaxSearched = 4;
// The most looks at a process that is late: one that is late each time would keep the probes of all files. The mappings
// of recorded processes are known.
constexpr int kMaxTries = 5;

// The longest wait for the files that tell a new rate. A file that takes longer tells it later.
constexpr absl::Duration kTellPatience = absl::Seconds(2);

// The longest wait for the files of a process that a command attaches to.
constexpr absl::Duration kFilesPatience = absl::Seconds(60);

// The device of the root file system; 0: unknown.
dev_t RootDevice() {
  struct stat root;
  return stat("/", &root) == 0 ? root.st_dev : 0;
}

}  // namespace

Allocators::Allocators(const Means& means, Options options)
    : means_(means),
      options_(std::move(options)),
      allocator_files_(means_.errands),
      probe_files_(means_.books, means_.errands, means.pins, options_.ids),
      root_device_(RootDevice()) {}

void Allocators::Inspect(pid_t pid, InspectDone done) {
  const base::OneThread one_thread(thread_);
  means_.looks.Inspect(pid, [this, pid, done = std::move(done)](absl::StatusOr<worker::LookedAt> found) {
    if (!found.ok()) return done(found.status());
    done(Complete(pid, *std::move(found)));
  });
}

absl::StatusOr<Inspection> Allocators::InspectNow(pid_t pid) {
  const auto result = std::make_shared<std::optional<absl::StatusOr<Inspection>>>();
  Inspect(pid, [result](absl::StatusOr<Inspection> inspection) { *result = std::move(inspection); });
  means_.looks.WaitUntil([result] { return result->has_value(); }, base::Now() + kFilesPatience);
  if (result->has_value()) return std::move(**result);
  return absl::UnavailableError(absl::StrCat("looking at process ", pid, " takes too long"));
}

Inspection Allocators::Complete(pid_t pid, worker::LookedAt found) {
  Inspection inspection;
  inspection.begin = found.begin;
  inspection.space.executable = found.facts.executable;
  inspection.facts = std::move(found.facts);
  for (const elf::Mapping& mapping : found.mappings) inspection.space.mappings.Add(mapping);
  for (const worker::LookedAt::File& one : found.files) {
    const elf::Mapping& mapping = found.mappings[one.mapping];
    SeenFile file = ToSeenFile(one.file, pid, mapping);
    const AllocatorFiles::Allocator* allocator = allocator_files_.Find(file.identity.version);
    if (allocator == nullptr) {
      WaitForReader(pid, file);
      inspection.is_pending = true;
      continue;
    }
    inspection.all.emplace_back(file, mapping);
    if (!allocator->ok()) {
      if (!absl::IsInvalidArgument(allocator->status())) refusals_.Note(file.identity.version, pid);
      if (!options_.is_system_wide) {
        base::Say(
            absl::StrCat(base::AsciiOnly(mapping.path), ": ", allocator->status().message(), "; this file is skipped"));
      }
      continue;
    }
    if (!(*allocator)->probes.HasSamples() || !IsWanted(file)) continue;
    if ((*allocator)->control.has_value()) {
      const absl::StatusOr<uint64_t> address = process::ControlAddress(*(*allocator)->control, mapping);
      if (address.ok()) inspection.control_addresses.push_back(*address);
    }
    inspection.files.push_back({std::move(file), (*allocator)->probes});
  }
  return inspection;
}

void Allocators::WaitForReader(pid_t pid, const SeenFile& file) {
  if (!pending_[pid].insert(file.identity.version).second) return;
  allocator_files_.Read(file, [this, pid, version = file.identity.version](const AllocatorFiles::Allocator&) {
    const auto pending = pending_.find(pid);
    if (pending == pending_.end() || pending->second.erase(version) == 0 || !pending->second.empty()) return;
    pending_.erase(pending);
    if (options_.is_system_wide) options_.look_again(pid);
  });
}

void Allocators::WaitFor(pid_t pid) {
  means_.errands.WaitUntil([&] { return !pending_.contains(pid); }, base::Now() + kFilesPatience);
}

bool Allocators::HasAttached(const Inspection& inspection) const {
  return std::ranges::any_of(inspection.files, [this](const Inspection::Found& found) {
    return probe_files_.IsAttached(found.file.identity.inode_address);
  });
}

absl::StatusOr<bool> Allocators::AttachFile(const SeenFile& file) {
  absl::StatusOr<bool> attached =
      AttachAllocator(file, means_.errands, allocator_files_, probe_files_, ProbeFiles::kEveryProcess);
  if (attached.ok() && *attached) files_kept_.insert_or_assign(file.identity.inode_address, file);
  return attached;
}

pid_t Allocators::ProcessesToAttach(pid_t pid) const {
  return options_.follow || !process::HasMainThread(pid) ? ProbeFiles::kEveryProcess : pid;
}

absl::Status Allocators::AttachAll(const std::vector<Inspection::Found>& files, pid_t pid) {
  if (options_.is_system_wide) {
    for (const Inspection::Found& found : files) {
      NoteAttached(found.file);
      probe_files_.Attach(found.file, found.probes, ProbeFiles::kEveryProcess, [](const absl::Status& status) {
        if (!status.ok()) base::Say(absl::StrCat(status.message(), "; this file is skipped"));
      });
    }
    return absl::OkStatus();
  }
  // Shared, because answers may come after this call.
  struct Attached {
    size_t files = 0;
    absl::Status status = {};
  };
  const auto attached = std::make_shared<Attached>();
  for (const Inspection::Found& found : files) {
    probe_files_.Attach(found.file, found.probes, ProcessesToAttach(pid), [attached](const absl::Status& status) {
      attached->files++;
      attached->status.Update(status);
    });
  }
  if (!means_.errands.WaitUntil([&] { return attached->files == files.size(); }, base::Now() + kFilesPatience)) {
    attached->status.Update(absl::UnavailableError(absl::StrCat("attaching to process ", pid, " takes too long")));
  }
  return attached->status;
}

void Allocators::Look(const bpf::MappingEvent& event) {
  const base::OneThread one_thread(thread_);
  if (options_.only_kept || !options_.looks_for_new) return;
  const FileShown key(bpf::KernelDevice(event.mapping), event.mapping.inode, event.mapping.generation);
  if (files_seen_.size() > kMaxFilesSeen) files_seen_.clear();
  Seen& seen = files_seen_[key];
  if (seen.is_known) {
    if (seen.file.has_value()) idle_.NoteUsed(*seen.file);
    return;
  }
  const uid_t payer = means_.looks.PayerOf(event.pid);
  // The look that another user pays for may take long.
  if (seen.looking.contains(payer)) return;
  if (!means_.looks.HasRoom(event.pid)) {
    if (seen.looking.empty()) files_seen_.erase(key);
    if (options_.is_system_wide) options_.look_again(event.pid);
    return;
  }
  seen.looking.insert(payer);
  means_.looks.Look(
      event.pid, event.mapping,
      [this, key, payer, pid = event.pid, mapping = event.mapping](const absl::StatusOr<worker::MappedFile>& found) {
        HandleSeen(key, payer, pid, mapping, found);
      });
}

void Allocators::HandleSeen(const FileShown& key, uid_t payer, pid_t pid, const elf::Mapping& mapping,
                            const absl::StatusOr<worker::MappedFile>& found) {
  const auto seen = files_seen_.find(key);
  if (seen != files_seen_.end()) seen->second.looking.erase(payer);
  if (!found.ok()) {
    // A short-lived process may be gone; the next one that maps the file serves as well.
    if (seen != files_seen_.end() && !seen->second.is_known && seen->second.looking.empty()) files_seen_.erase(seen);
    if (worker::MayPass(found.status()) && options_.is_system_wide) options_.look_again(pid);
    return;
  }
  files_seen_[key].is_known = true;
  const SeenFile file = ToSeenFile(*found, pid, mapping);
  if (const AllocatorFiles::Allocator* known = allocator_files_.Find(file.identity.version); known != nullptr) {
    return AttachSeen(file, *known, key);
  }
  allocator_files_.Read(
      file, [this, file, key](const AllocatorFiles::Allocator& allocator) { AttachSeen(file, allocator, key); });
}

void Allocators::ForgetFailures(base::Instant now) {
  probe_files_.ForgetFailures();
  for (const worker::FileVersion& version : allocator_files_.ForgetFailures(now)) {
    const std::set<pid_t> processes = refusals_.Take(version);
    if (!options_.is_system_wide) continue;
    for (const pid_t pid : processes) options_.look_again(pid);
  }
}

void Allocators::TellRate(std::optional<uint32_t> lg_sample) {
  probe_files_.TellRate(lg_sample);
  // When a process maps a file next, the file's processes are told the new rate.
  files_seen_.clear();
  // Shared, because answers may come after this call.
  const auto waits = std::make_shared<size_t>(0);
  for (const auto& [inode, file] : files_kept_) {
    const AllocatorFiles::Allocator* const allocator = allocator_files_.Find(file.identity.version);
    if (allocator == nullptr || !allocator->ok()) continue;
    ++*waits;
    probe_files_.Attach(file, (*allocator)->probes, ProbeFiles::kEveryProcess,
                        [waits](const absl::Status&) { --*waits; });
  }
  means_.errands.WaitUntil([&] { return *waits == 0; }, base::Now() + kTellPatience);
}

void Allocators::AttachSeen(const SeenFile& file, const AllocatorFiles::Allocator& allocator, const FileShown& key) {
  if (!allocator.ok()) {
    const absl::Status& status = allocator.status();
    if (!absl::IsInvalidArgument(status)) refusals_.Note(file.identity.version, file.file.pid);
    return HandleRefused(absl::Status(status.code(), absl::StrCat(base::AsciiOnly(file.name), ": ", status.message())),
                         key);
  }
  if (!allocator->probes.HasSamples()) return;
  if (const auto seen = files_seen_.find(key); seen != files_seen_.end()) {
    seen->second.file = file.identity.inode_address;
  }
  NoteAttached(file);
  if (probe_files_.IsWhole(file.identity.inode_address)) return NoteMapped(file);
  probe_files_.Attach(file, allocator->probes, ProcessesToAttach(file.file.pid),
                      [this, mapping = file.file.mapping, key](const absl::Status& status) {
                        if (!status.ok()) return HandleRefused(status, key);
                        options_.on_attached(mapping);
                      });
}

void Allocators::HandleRefused(const absl::Status& status, const FileShown& key) {
  // The file may be fine, and the next process that maps it serves as well.
  if (!absl::IsInvalidArgument(status)) files_seen_.erase(key);
  if (absl::IsNotFound(status) || files_reported_.size() == kMaxFilesReported || !files_reported_.insert(key).second) {
    return;
  }
  base::Say(absl::StrCat(
      status.message(), absl::IsUnavailable(status) ? "" : "; this file is skipped",
      files_reported_.size() < kMaxFilesReported ? "" : ", and from now on other files are skipped without a message"));
}

void Allocators::Release(base::Instant now) {
  const base::OneThread one_thread(thread_);
  if (now - failures_forgotten_ >= kReleaseInterval) {
    failures_forgotten_ = now;
    ForgetFailures(now);
  }
  if (search_.has_value()) {
    std::ranges::move(std::exchange(search_->late, {}), std::back_inserter(search_->processes));
    return Search();
  }
  if (now - files_looked_at_ < kReleaseInterval || probe_files_.IsReleasing()) return;
  files_looked_at_ = now;
  std::set<ProbeFiles::File> unused = probe_files_.files();
  // An earlier collector may have attached others.
  if (options_.only_kept) {
    std::erase_if(unused, [&](ProbeFiles::File file) { return files_kept_.contains(file); });
    if (!unused.empty()) probe_files_.Release(unused);
    return;
  }
  std::erase_if(unused, [&](ProbeFiles::File file) {
    if (files_kept_.contains(file)) return true;
    const auto mapped = files_mapped_.find(file);
    return mapped != files_mapped_.end() && !means_.spaces.ProcessesMapping(mapped->second).empty();
  });
  unused = idle_.Due(unused, now);
  if (unused.empty()) return;
  absl::StatusOr<std::vector<pid_t>> processes = process::ListProcesses();
  // A process that is missing in the list could map one of them.
  if (!processes.ok()) return;
  search_ = {.unused = std::move(unused), .processes = *std::move(processes)};
  // From now on AttachSeen notes who maps one of them.
  files_seen_.clear();
  Search();
}

// Looks at all processes: some are unknown here, and overlay file systems show a file under other numbers.
void Allocators::Search() {
  std::vector<pid_t>& left = search_->processes;
  while (!left.empty() && !search_->unused.empty() && search_->under_way < kMaxSearched) {
    const pid_t pid = left.back();
    left.pop_back();
    if (!means_.looks.HasRoom(pid)) {
      search_->late.push_back(pid);
      continue;
    }
    search_->under_way++;
    means_.looks.Inspect(pid,
                         [this, pid](const absl::StatusOr<worker::LookedAt>& found) { HandleSearched(pid, found); });
  }
  const bool is_over = search_->unused.empty() || (left.empty() && search_->late.empty());
  if (!is_over || search_->under_way != 0) return;
  const std::set<ProbeFiles::File> unused = std::move(search_->unused);
  search_.reset();
  if (unused.empty()) return;
  probe_files_.Release(unused);
  for (const ProbeFiles::File file : unused) files_mapped_.erase(file);
  // When a process maps one of them next, the file is attached again.
  files_seen_.clear();
}

void Allocators::HandleSearched(pid_t pid, const absl::StatusOr<worker::LookedAt>& found) {
  search_->under_way--;
  if (found.ok()) {
    for (const worker::LookedAt::File& one : found->files) {
      NoteMapped(ToSeenFile(one.file, pid, found->mappings[one.mapping]));
    }
  } else if (worker::MayPass(found.status()) && ++search_->tries[pid] < kMaxTries) {
    search_->late.push_back(pid);
  }
  Search();
}

void Allocators::NoteAttached(const SeenFile& file) {
  const worker::FileVersion& version = file.identity.version;
  idle_.NoteAttached(file.identity.inode_address, root_device_ == makedev(version.device_major, version.device_minor));
}

void Allocators::NoteMapped(const SeenFile& file) {
  const ProbeFiles::File inode = file.identity.inode_address;
  idle_.NoteUsed(inode);
  if (search_.has_value() && search_->unused.erase(inode) != 0) files_mapped_[inode] = file.file.mapping;
}

}  // namespace heaptap::recording
