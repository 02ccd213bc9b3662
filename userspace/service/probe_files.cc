// SPDX-License-Identifier: Apache-2.0
#include "userspace/service/probe_files.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "heaptap/contract.h"

namespace heaptap::service {
namespace {

struct KnownProbe {
  absl::string_view provider;
  absl::string_view name;
  int arguments;
  const bpf_program* (bpf::Books::*program)() const;
};

// In the order of attaching: alloc last, so that no sample is recorded whose free or dump request would be missed.
constexpr KnownProbe kKnownProbes[] = {
    {HEAPTAP_PROVIDER, HEAPTAP_PROBE_DUMP, 1, &bpf::Books::dump_program},
    {HEAPTAP_PROVIDER, HEAPTAP_PROBE_THREAD_NAME, 1, &bpf::Books::thread_name_program},
    {HEAPTAP_PROVIDER, HEAPTAP_PROBE_START, 1, &bpf::Books::start_program},
    {HEAPTAP_PROVIDER_OTEL, HEAPTAP_PROBE_FREE, 1, &bpf::Books::free_program},
    {HEAPTAP_PROVIDER_OTEL, HEAPTAP_PROBE_ALLOC, 3, &bpf::Books::alloc_program},
};

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
  if (absl::Status attached = AttachSites(*allocator, path, pid); !attached.ok()) return attached;
  seen.attached = true;
  return true;
}

bool ProbeFiles::IsAttached(int fd) const {
  struct stat status;
  if (fstat(fd, &status) != 0) return false;
  const auto seen = seen_.find({status.st_dev, status.st_ino});
  return seen != seen_.end() && seen->second.attached;
}

void ProbeFiles::Detach() {
  while (!probes_.empty()) probes_.pop_back();
  seen_.clear();
}

absl::Status ProbeFiles::AttachSites(const Allocator& allocator, const std::string& path, pid_t pid) {
  std::vector<bpf::AttachedProbe> probes;
  for (const KnownProbe& known : kKnownProbes) {
    for (const elf::ProbeSite& site : allocator.sites) {
      if (!Is(site, known)) continue;
      absl::StatusOr<bpf::AttachedProbe> probe = bpf::AttachedProbe::Attach(
          (books_.*known.program)(), {path, site.file_offset, site.semaphore_file_offset}, pid);
      if (!probe.ok()) return probe.status();
      probes.push_back(*std::move(probe));
    }
  }
  for (bpf::AttachedProbe& probe : probes) probes_.push_back(std::move(probe));
  return absl::OkStatus();
}

}  // namespace heaptap::service
