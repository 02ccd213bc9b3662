// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/preloaded.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "userspace/elf/mappings.h"
#include "userspace/process/allocator_probes.h"
#include "userspace/process/control_block.h"
#include "userspace/process/maps.h"
#include "userspace/process/preload.h"

namespace heaptap::process {

absl::StatusOr<Preloaded> PreloadedFinder::Find(pid_t pid) {
  // The mappings are read first, so that a process without an allocator is not opened for writing.
  absl::StatusOr<std::vector<elf::Mapping>> mappings = ReadExecutableMappings(pid);
  if (absl::IsNotFound(mappings.status())) return absl::NotFoundError(absl::StrCat("no process ", pid));
  if (absl::IsPermissionDenied(mappings.status())) {
    // Opening the memory fails too, and with a better message.
    if (absl::Status refused = Handle::Open(pid).status(); !refused.ok()) return refused;
  }
  if (!mappings.ok()) return mappings.status();
  bool has_samples = false;
  std::vector<uint64_t> controls;  // one of several allocators takes samples; another's block may be empty (sample.h)
  for (const elf::Mapping& mapping : *mappings) {
    const std::tuple key(mapping.device_major, mapping.device_minor, mapping.inode);
    if (mapping.inode == 0 || without_samples_.contains(key)) continue;
    absl::StatusOr<MappedFile> file = OpenMapped(pid, mapping);
    if (absl::IsPermissionDenied(file.status())) return file.status();
    if (!file.ok()) continue;
    absl::StatusOr<process::AllocatorProbes> probes = process::ReadAllocatorProbes(file->file.get());
    if (!probes.ok() || !probes->HasSamples()) {
      without_samples_.insert(key);
      continue;
    }
    has_samples = true;
    absl::StatusOr<uint64_t> address = FindControl(file->file.get(), mapping);
    if (address.ok()) controls.push_back(*address);
  }
  std::string command = NameOf(pid);
  if (!has_samples) {
    return absl::NotFoundError(
        absl::StrCat("process ", pid, " (", command, ") has no sampled allocator: start it with LD_PRELOAD=",
                     PathToShow(Library::kAllocator), " (heaptap doctor -p ", pid, " shows the command)"));
  }
  absl::StatusOr<Handle> process = Handle::Open(pid);
  if (!process.ok()) return process.status();
  Preloaded found = {.process = *std::move(process), .command = std::move(command)};
  absl::Status refused;
  for (const uint64_t address : controls) {
    const absl::StatusOr<heaptap_control> control = ReadControl(found.process, address);
    if (!control.ok()) {
      refused = control.status();
      continue;
    }
    found.control_address = address;
    found.control = *control;
    found.collector = OtherCollector(*control);
    return found;
  }
  if (!refused.ok()) return refused;
  return found;
}

absl::StatusOr<PreloadedFinder::All> PreloadedFinder::FindAll() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), closedir);
  if (folder == nullptr) return absl::FailedPreconditionError(absl::StrCat("/proc: ", strerror(errno)));
  std::vector<pid_t> pids;
  while (const dirent* entry = readdir(folder.get())) {
    pid_t pid = 0;
    if (absl::SimpleAtoi(entry->d_name, &pid)) pids.push_back(pid);
  }
  std::sort(pids.begin(), pids.end());
  All all;
  for (const pid_t pid : pids) {
    absl::StatusOr<Preloaded> found = Find(pid);
    if (found.ok()) {
      all.processes.push_back(*std::move(found));
    } else if (absl::IsPermissionDenied(found.status())) {
      all.refused++;
    }
  }
  return all;
}

}  // namespace heaptap::process
