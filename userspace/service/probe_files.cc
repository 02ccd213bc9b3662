// SPDX-License-Identifier: Apache-2.0
#include "userspace/service/probe_files.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "heaptap/contract.h"

namespace heaptap::service {
namespace {

struct KnownProbe {
  absl::string_view provider;
  absl::string_view name;
  int arguments;
  bpf::Program program;
};

// In the order of attaching: alloc last, so that no sample is recorded whose free or dump request would be missed.
constexpr KnownProbe kKnownProbes[] = {
    {HEAPTAP_PROVIDER, HEAPTAP_PROBE_DUMP, 1, bpf::Program::kDump},
    {HEAPTAP_PROVIDER, HEAPTAP_PROBE_THREAD_NAME, 1, bpf::Program::kThreadName},
    {HEAPTAP_PROVIDER, HEAPTAP_PROBE_START, 1, bpf::Program::kTakeControl},
    {HEAPTAP_PROVIDER, HEAPTAP_PROBE_START, 1, bpf::Program::kStart},
    {HEAPTAP_PROVIDER_OTEL, HEAPTAP_PROBE_FREE, 1, bpf::Program::kFree},
    {HEAPTAP_PROVIDER_OTEL, HEAPTAP_PROBE_ALLOC, 3, bpf::Program::kAlloc},
};

// Pinned links: file_<device>_<inode>_<number, as they were attached>, and at last file_<device>_<inode>_whole.
constexpr absl::string_view kPinPrefix = "file_";
constexpr absl::string_view kWhole = "whole";

std::string PinOf(dev_t device, ino_t inode) { return absl::StrCat(kPinPrefix, device, "_", inode, "_"); }

bool Is(const elf::ProbeSite& site, const KnownProbe& probe) {
  return site.provider == probe.provider && site.name == probe.name;
}

}  // namespace

bool Allocator::HasSamples() const {
  bool alloc = false;
  bool free = false;
  for (const elf::ProbeSite& site : sites) {
    if (site.provider != HEAPTAP_PROVIDER_OTEL) continue;
    alloc |= site.name == HEAPTAP_PROBE_ALLOC;
    free |= site.name == HEAPTAP_PROBE_FREE;
  }
  return alloc && free;
}

absl::StatusOr<Allocator> ReadAllocator(int fd) {
  constexpr absl::string_view kProviders[] = {HEAPTAP_PROVIDER_OTEL, HEAPTAP_PROVIDER};
  absl::StatusOr<std::vector<elf::ProbeSite>> sites = elf::ReadProbes(fd, kProviders);
  if (!sites.ok()) return sites.status();
  for (const elf::ProbeSite& site : *sites) {
    for (const KnownProbe& probe : kKnownProbes) {
      if (!Is(site, probe) || elf::ArgumentsInRegisters(site.arguments, probe.arguments)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("probe ", site.provider, ":", site.name, " passes its arguments as \"", site.arguments,
                       "\"; they must lie in the SysV argument registers (rdi, rsi, rdx)"));
    }
  }
  return Allocator{*std::move(sites)};
}

absl::StatusOr<bool> ProbeFiles::Attach(int fd, const std::string& path, absl::string_view name, pid_t pid) {
  struct stat status;
  if (fstat(fd, &status) != 0) return absl::UnavailableError(absl::StrCat(name, ": ", strerror(errno)));
  Seen& seen = seen_[{status.st_dev, status.st_ino}];
  const bool same = seen.changed.tv_sec == status.st_ctim.tv_sec && seen.changed.tv_nsec == status.st_ctim.tv_nsec;
  // What is attached keeps its inode alive, so it is the same file whatever its times say.
  if (seen.attached || same) return seen.attached;
  seen.changed = status.st_ctim;

  absl::StatusOr<Allocator> allocator = ReadAllocator(fd);
  if (!allocator.ok()) {
    return absl::Status(allocator.status().code(), absl::StrCat(name, ": ", allocator.status().message()));
  }
  if (!allocator->HasSamples()) return false;
  const std::string pin = PinOf(status.st_dev, status.st_ino);
  if (absl::Status attached = AttachSites(*allocator, path, pid, pin); !attached.ok()) return attached;
  seen.attached = true;
  return true;
}

bool ProbeFiles::IsAttached(int fd) const {
  struct stat status;
  if (fstat(fd, &status) != 0) return false;
  const auto seen = seen_.find({status.st_dev, status.st_ino});
  return seen != seen_.end() && seen->second.attached;
}

size_t ProbeFiles::size() const {
  return std::count_if(seen_.begin(), seen_.end(), [](const auto& file) { return file.second.attached; });
}

ProbeFiles::ProbeFiles(const bpf::Books& books, const bpf::Pins* pins) : books_(books), pins_(pins) {
  if (pins_ != nullptr) TakeOver();
}

ProbeFiles::~ProbeFiles() {
  if (pins_ == nullptr) Detach();
}

void ProbeFiles::TakeOver() {
  std::map<std::pair<dev_t, ino_t>, std::set<std::string>> files;
  for (const std::string& name : pins_->Names()) {
    if (!absl::StartsWith(name, kPinPrefix)) continue;
    const std::vector<absl::string_view> parts = absl::StrSplit(name, '_');
    dev_t device = 0;
    ino_t inode = 0;
    if (parts.size() == 4 && absl::SimpleAtoi(parts[1], &device) && absl::SimpleAtoi(parts[2], &inode)) {
      files[{device, inode}].insert(std::string(parts[3]));
    }
  }
  for (const auto& [file, names] : files) {
    if (names.contains(std::string(kWhole))) {
      seen_[file].attached = true;
      continue;
    }
    // Its collector was killed while it attached.
    for (const std::string& name : names) pins_->Remove(absl::StrCat(PinOf(file.first, file.second), name));
  }
}

void ProbeFiles::Detach() {
  while (!probes_.empty()) probes_.pop_back();
  if (pins_ != nullptr) {
    for (const std::string& name : pins_->Names()) {
      if (absl::StartsWith(name, kPinPrefix)) pins_->Remove(name);
    }
  }
  seen_.clear();
}

absl::Status ProbeFiles::AttachSites(const Allocator& allocator, const std::string& path, pid_t pid,
                                     const std::string& pin) {
  std::vector<bpf::AttachedProbe> probes;
  absl::Cleanup remove_pins = [&] {
    for (size_t i = 0; pins_ != nullptr && i <= probes.size(); i++) pins_->Remove(absl::StrCat(pin, i));
  };
  for (const KnownProbe& known : kKnownProbes) {
    const int program = books_.program(known.program);
    if (program < 0) continue;
    for (const elf::ProbeSite& site : allocator.sites) {
      if (!Is(site, known)) continue;
      absl::StatusOr<bpf::AttachedProbe> probe =
          bpf::AttachedProbe::Attach(program, {path, site.file_offset, site.semaphore_file_offset}, pid);
      if (!probe.ok()) return probe.status();
      if (pins_ != nullptr) {
        if (absl::Status pinned = pins_->Pin(probe->link(), absl::StrCat(pin, probes.size())); !pinned.ok()) {
          return pinned;
        }
      }
      probes.push_back(*std::move(probe));
    }
  }
  if (pins_ != nullptr) {
    if (absl::Status pinned = pins_->Pin(probes.back().link(), absl::StrCat(pin, kWhole)); !pinned.ok()) return pinned;
  }
  std::move(remove_pins).Cancel();
  for (bpf::AttachedProbe& probe : probes) probes_.push_back(std::move(probe));
  return absl::OkStatus();
}

}  // namespace heaptap::service
