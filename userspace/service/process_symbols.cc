// SPDX-License-Identifier: Apache-2.0
#include "userspace/service/process_symbols.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/elf/file.h"
#include "userspace/elf/file_descriptor.h"
#include "userspace/elf/mappings.h"
#include "userspace/export/frame_names.h"
#include "userspace/symbolize/debug_files.h"

namespace heaptap::service {
namespace {

// When there are more, all are forgotten.
constexpr size_t kMaxBuildIds = 4096;

using FramesByAddress = absl::flat_hash_map<uint64_t, symbolize::Frames>;

std::vector<exporter::SourceFrame> ToSourceFrames(const symbolize::Frames& frames) {
  std::vector<exporter::SourceFrame> result;
  result.reserve(frames.size());
  for (const symbolize::Frame& frame : frames) {
    result.push_back(
        {.function = std::string(frame.function.view()), .file = std::string(frame.file.view()), .line = frame.line});
  }
  return result;
}

exporter::FindSourceFrames FindIn(FramesByAddress frames) {
  auto known = std::make_shared<const FramesByAddress>(std::move(frames));
  return [known](uint64_t address) {
    auto found = known->find(address);
    return found == known->end() ? std::vector<exporter::SourceFrame>() : ToSourceFrames(found->second);
  };
}

// Groups addresses by the index of their mapping; drops those without one.
std::map<size_t, std::vector<uint64_t>> ByMapping(const std::vector<elf::Mapping>& mappings,
                                                  absl::Span<const uint64_t> addresses) {
  std::map<size_t, std::vector<uint64_t>> result;
  for (uint64_t address : addresses) {
    const elf::Mapping* mapping = exporter::FindMapping(mappings, address);
    if (mapping != nullptr && mapping->inode != 0) result[mapping - mappings.data()].push_back(address);
  }
  return result;
}

std::vector<uint64_t> CallAddresses(const profile::Profile& profile) {
  std::vector<uint64_t> addresses;
  for (const profile::Context& context : profile.contexts) {
    for (uint64_t frame : context.frames) addresses.push_back(exporter::CallAddress(frame));
  }
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  return addresses;
}

}  // namespace

// Opens the files of one process.
class ProcessSymbols::Files {
 public:
  Files(Collector& collector, const ProfileSnapshot& snapshot) : pid_(snapshot.profile.pid) {
    elf::FileDescriptor maps(open(absl::StrCat("/proc/", pid_, "/maps").c_str(), O_RDONLY | O_CLOEXEC));
    if (!maps.valid()) return;
    absl::StatusOr<std::vector<ProcessSummary>> recorded = collector.Processes();
    if (!recorded.ok()) return;
    const bool is_same = std::any_of(recorded->begin(), recorded->end(), [&](const ProcessSummary& summary) {
      return summary.pid == pid_ && summary.process_id == snapshot.process_id;
    });
    if (is_same) maps_ = std::move(maps);
  }

  absl::StatusOr<elf::MappedFile> Open(const elf::Mapping& mapping) const {
    if (maps_.valid()) {
      absl::StatusOr<elf::MappedFile> file = elf::OpenMapped(pid_, mapping);
      char byte;
      if (file.ok() && pread(maps_.get(), &byte, sizeof(byte), 0) == sizeof(byte)) return file;
    }
    return elf::OpenByPath(mapping);
  }

 private:
  pid_t pid_;
  // /proc/PID/maps of the address space at the time of opening; invalid: the process is gone.
  elf::FileDescriptor maps_;
};

ProcessSymbols::ProcessSymbols(Collector& collector, Options options)
    : collector_(collector), options_(std::move(options)), symbolizer_(options_.symbolizer) {}

exporter::FindSourceFrames ProcessSymbols::Find(const ProfileSnapshot& snapshot, absl::Span<const uint64_t> addresses) {
  const absl::Time deadline = absl::Now() + options_.patience;
  const Files files(collector_, snapshot);
  FramesByAddress known;
  for (const auto& [index, in_mapping] : ByMapping(snapshot.profile.mappings, addresses)) {
    const elf::Mapping& mapping = snapshot.profile.mappings[index];
    absl::StatusOr<elf::MappedFile> file = files.Open(mapping);
    if (!file.ok()) continue;
    for (size_t begin = 0; begin < in_mapping.size(); begin += symbolize::kMaxBatch) {
      const auto batch = absl::MakeConstSpan(in_mapping).subspan(begin, symbolize::kMaxBatch);
      std::vector<uint64_t> offsets;
      offsets.reserve(batch.size());
      for (uint64_t address : batch) offsets.push_back(symbolize::FileOffset(mapping, address));
      std::vector<symbolize::Frames> frames = Symbolize(mapping, file->file.get(), offsets, deadline);
      for (size_t i = 0; i < frames.size(); ++i) known.insert_or_assign(batch[i], std::move(frames[i]));
    }
  }
  return FindIn(std::move(known));
}

exporter::FindSourceFrames ProcessSymbols::FindAll(ProfileSnapshot& snapshot) {
  const std::vector<uint64_t> addresses = CallAddresses(snapshot.profile);
  const Files files(collector_, snapshot);
  std::vector<elf::Mapping>& mappings = snapshot.profile.mappings;
  const std::map<size_t, std::vector<uint64_t>> by_mapping = ByMapping(mappings, addresses);
  for (size_t index = 0; index < mappings.size(); ++index) {
    elf::Mapping& mapping = mappings[index];
    if (!by_mapping.contains(index) && mapping.path != snapshot.executable) continue;
    absl::StatusOr<elf::MappedFile> file = files.Open(mapping);
    if (file.ok()) mapping.build_id = BuildId(file->file.get());
  }
  return Find(snapshot, addresses);
}

std::vector<symbolize::Frames> ProcessSymbols::Symbolize(const elf::Mapping& mapping, int fd,
                                                         absl::Span<const uint64_t> offsets, absl::Time deadline) {
  {
    absl::MutexLock lock(&mutex_);
    const auto is_free = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !is_busy_; };
    if (!mutex_.AwaitWithDeadline(absl::Condition(&is_free), deadline) || absl::Now() > deadline) return {};
    is_busy_ = true;
  }
  // In a cleanup, because Symbolize can throw std::bad_alloc.
  const absl::Cleanup free = [this] {
    absl::MutexLock lock(&mutex_);
    is_busy_ = false;
  };
  return symbolizer_.Symbolize(mapping, fd, offsets);
}

std::string ProcessSymbols::BuildId(int fd) {
  // Uses the kernel's cached attributes: a file system served by the process could block a fresh look.
  struct statx status;
  if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &status) != 0) return "";
  const Version version(status.stx_dev_major, status.stx_dev_minor, status.stx_ino, status.stx_ctime.tv_sec,
                        status.stx_ctime.tv_nsec);
  {
    absl::MutexLock lock(&mutex_);
    if (auto known = build_ids_.find(version); known != build_ids_.end()) return known->second;
  }
  const absl::StatusOr<elf::File> file = elf::File::Open(fd);
  std::string build_id = file.ok() ? symbolize::ReadBuildId(*file) : "";
  absl::MutexLock lock(&mutex_);
  if (build_ids_.size() >= kMaxBuildIds) build_ids_.clear();
  build_ids_[version] = build_id;
  return build_id;
}

}  // namespace heaptap::service
