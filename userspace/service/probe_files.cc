// SPDX-License-Identifier: Apache-2.0
#include "userspace/service/probe_files.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include <iterator>
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
  heaptap_probe site;
};

// In the order of attaching: alloc comes last, so that no recorded sample has its free or dump request missed.
constexpr KnownProbe kKnownProbes[] = {
    {HEAPTAP_PROVIDER, HEAPTAP_PROBE_DUMP, 1, bpf::Program::kDump, HEAPTAP_PROBE_DUMP_SITE},
    {HEAPTAP_PROVIDER, HEAPTAP_PROBE_THREAD_NAME, 1, bpf::Program::kThreadName, HEAPTAP_PROBE_THREAD_NAME_SITE},
    {HEAPTAP_PROVIDER, HEAPTAP_PROBE_START, 1, bpf::Program::kTakeControl, HEAPTAP_PROBE_CONTROL_SITE},
    {HEAPTAP_PROVIDER, HEAPTAP_PROBE_START, 1, bpf::Program::kStart, HEAPTAP_PROBE_START_SITE},
    {HEAPTAP_PROVIDER_OTEL, HEAPTAP_PROBE_FREE, 1, bpf::Program::kFree, HEAPTAP_PROBE_FREE_SITE},
    {HEAPTAP_PROVIDER_OTEL, HEAPTAP_PROBE_ALLOC, 3, bpf::Program::kAlloc, HEAPTAP_PROBE_ALLOC_SITE},
};

// Pinned links: file_<File in hexadecimal>_<number> in the order of attaching, and finally file_<File>_whole.
constexpr absl::string_view kPinPrefix = "file_";
constexpr absl::string_view kWhole = "whole";

std::string PinOf(ProbeFiles::File file) { return absl::StrCat(kPinPrefix, absl::Hex(file), "_"); }

// One for each probe of the contract; inlining duplicates some.
constexpr size_t kMaxSitesOfFile = 32;

// A perf event has 32 bits for the offset.
constexpr uint64_t kMaxSemaphoreOffset = UINT32_MAX;

// Remembered files without an allocator. Reading one again costs some microseconds.
constexpr size_t kMaxWithoutAllocator = 65536;

// Any user can create files with notes and map them. Each attached file costs descriptors and kernel memory, and keeps
// its inode alive. Files of distributions and containers belong to root.
constexpr size_t kMaxFiles = 1024;
constexpr size_t kMaxFilesOfUsers = 256;
constexpr size_t kMaxFilesOfUser = 32;

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
      if (!Is(site, probe)) continue;
      if (site.semaphore_file_offset > kMaxSemaphoreOffset) {
        return absl::InvalidArgumentError(
            absl::StrCat("the semaphore of probe ", site.provider, ":", site.name, " lies beyond 4 GiB in the file"));
      }
      if (elf::ArgumentsInRegisters(site.arguments, probe.arguments)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("probe ", site.provider, ":", site.name, " passes its arguments as \"", site.arguments,
                       "\"; they must be in the SysV argument registers (rdi, rsi, rdx)"));
    }
  }
  return Allocator{*std::move(sites)};
}

absl::StatusOr<bool> ProbeFiles::Attach(int fd, const std::string& path, absl::string_view name, pid_t pid) {
  struct stat status;
  if (fstat(fd, &status) != 0) return absl::UnavailableError(absl::StrCat(name, ": ", strerror(errno)));
  if (without_allocator_.size() >= kMaxWithoutAllocator) without_allocator_.clear();
  // An attached file keeps its inode alive, so it is still the same file.
  if (Find(fd).has_value()) return true;
  const auto [other, is_new] = without_allocator_.try_emplace({status.st_dev, status.st_ino});
  timespec& changed = other->second;
  if (!is_new && changed.tv_sec == status.st_ctim.tv_sec && changed.tv_nsec == status.st_ctim.tv_nsec) return false;
  changed = status.st_ctim;

  absl::StatusOr<Allocator> allocator = ReadAllocator(fd);
  if (!allocator.ok()) {
    return absl::Status(allocator.status().code(), absl::StrCat(name, ": ", allocator.status().message()));
  }
  if (!allocator->HasSamples()) return false;
  if (absl::Status room = CheckRoom(*allocator, status.st_uid, name); !room.ok()) return room;
  const absl::StatusOr<File> file = books_.unwind().FindInode(fd);
  if (!file.ok()) return absl::UnavailableError(absl::StrCat(name, ": ", file.status().message()));
  if (attached_.contains(*file)) return true;
  absl::StatusOr<std::vector<bpf::AttachedProbe>> probes = AttachSites(*allocator, path, pid, PinOf(*file));
  if (!probes.ok()) return probes.status();
  attached_[*file] = {*std::move(probes), status.st_uid};
  without_allocator_.erase(other);
  return true;
}

absl::Status ProbeFiles::CheckRoom(const Allocator& allocator, uid_t owner, absl::string_view name) const {
  if (allocator.sites.size() > kMaxSitesOfFile) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": it has ", allocator.sites.size(),
                                                   " probe sites, but at most ", kMaxSitesOfFile, " are allowed"));
  }
  size_t of_users = 0;
  size_t of_owner = 0;
  for (const auto& [file, attached] : attached_) {
    of_users += attached.owner != 0 ? 1 : 0;
    of_owner += attached.owner == owner ? 1 : 0;
  }
  if (attached_.size() >= kMaxFiles || (owner != 0 && (of_users >= kMaxFilesOfUsers || of_owner >= kMaxFilesOfUser))) {
    return absl::ResourceExhaustedError(absl::StrCat(name, ": too many files have probes already: ", attached_.size(),
                                                     ", ", of_owner, " of them owned by user ", owner));
  }
  return absl::OkStatus();
}

std::optional<ProbeFiles::File> ProbeFiles::Find(int fd) const {
  const absl::StatusOr<File> file = books_.unwind().FindInode(fd);
  if (!file.ok() || !attached_.contains(*file)) return std::nullopt;
  return *file;
}

std::set<ProbeFiles::File> ProbeFiles::files() const {
  std::set<File> files;
  for (const auto& [file, probes] : attached_) files.insert(file);
  return files;
}

ProbeFiles::ProbeFiles(const bpf::Books& books, const bpf::Pins* pins) : books_(books), pins_(pins) {
  if (pins_ != nullptr) TakeOver();
}

ProbeFiles::~ProbeFiles() {
  if (pins_ == nullptr) Detach();
  if (releasing_.joinable()) releasing_.join();
}

void ProbeFiles::TakeOver() {
  std::map<File, std::set<std::string>> files;
  for (const std::string& name : pins_->Names()) {
    if (!absl::StartsWith(name, kPinPrefix)) continue;
    const std::vector<absl::string_view> parts = absl::StrSplit(name, '_');
    File file = 0;
    if (parts.size() == 3 && absl::SimpleHexAtoi(parts[1], &file)) files[file].insert(std::string(parts[2]));
  }
  for (const auto& [file, names] : files) {
    if (names.contains(std::string(kWhole))) {
      attached_[file];
      continue;
    }
    // The collector was killed while it attached the file.
    for (const std::string& name : names) pins_->Remove(absl::StrCat(PinOf(file), name));
  }
}

void ProbeFiles::Release(const std::set<File>& files) {
  if (is_releasing_) return;
  if (releasing_.joinable()) releasing_.join();
  const std::vector<std::string> pins = pins_ == nullptr ? std::vector<std::string>() : pins_->Names();
  std::vector<bpf::AttachedProbe> probes;
  for (const File file : files) {
    const auto found = attached_.find(file);
    if (found == attached_.end()) continue;
    std::move(found->second.probes.begin(), found->second.probes.end(), std::back_inserter(probes));
    attached_.erase(found);
    for (const std::string& name : pins) {
      if (absl::StartsWith(name, PinOf(file))) pins_->Remove(name);
    }
  }
  is_releasing_ = true;
  releasing_ = std::thread([this, probes = std::move(probes)]() mutable {
    while (!probes.empty()) probes.pop_back();
    is_releasing_ = false;
  });
}

void ProbeFiles::Detach() {
  for (auto& [file, attached] : attached_) {
    while (!attached.probes.empty()) attached.probes.pop_back();
  }
  if (pins_ != nullptr) {
    for (const std::string& name : pins_->Names()) {
      if (absl::StartsWith(name, kPinPrefix)) pins_->Remove(name);
    }
  }
  attached_.clear();
  without_allocator_.clear();
}

absl::StatusOr<std::vector<bpf::AttachedProbe>> ProbeFiles::AttachAtOnce(const Allocator& allocator,
                                                                         const std::string& path, pid_t pid,
                                                                         const std::string& pin) {
  std::vector<bpf::ProbeSite> sites;
  for (const KnownProbe& known : kKnownProbes) {
    // The kernel accepts each site once; take_control itself calls the start program.
    const bool comes_later = known.program == bpf::Program::kStart && books_.program(bpf::Program::kTakeControl) >= 0;
    if (books_.program(known.program) < 0 || comes_later) continue;
    for (const elf::ProbeSite& site : allocator.sites) {
      if (Is(site, known)) sites.push_back({site.file_offset, site.semaphore_file_offset, known.site});
    }
  }
  absl::StatusOr<bpf::AttachedProbe> probe =
      bpf::AttachedProbe::AttachMany(books_.program(bpf::Program::kAny), path, sites, pid);
  if (!probe.ok()) return probe.status();
  if (pins_ != nullptr) {
    if (absl::Status pinned = pins_->Pin(probe->link(), absl::StrCat(pin, kWhole)); !pinned.ok()) return pinned;
  }
  std::vector<bpf::AttachedProbe> probes;
  probes.push_back(*std::move(probe));
  return probes;
}

absl::StatusOr<std::vector<bpf::AttachedProbe>> ProbeFiles::AttachSites(const Allocator& allocator,
                                                                        const std::string& path, pid_t pid,
                                                                        const std::string& pin) {
  if (books_.program(bpf::Program::kAny) >= 0) return AttachAtOnce(allocator, path, pid, pin);
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
  return probes;
}

}  // namespace heaptap::service
