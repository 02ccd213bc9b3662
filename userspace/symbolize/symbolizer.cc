// SPDX-License-Identifier: Apache-2.0
#include "userspace/symbolize/symbolizer.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "userspace/symbolize/resolve.h"

namespace heaptap::symbolize {
namespace {

// Memory of a slot of the table and the allocation of its frames.
constexpr uint64_t kOffsetBytes = sizeof(std::pair<uint64_t, Frames>) + 1 + 16;
constexpr uint64_t kFileBytes = 512;

}  // namespace

Symbolizer::Symbolizer(Options options) : options_(std::move(options)) {}

std::vector<Frames> Symbolizer::Symbolize(const elf::Mapping& mapping, int fd,
                                          absl::Span<const uint64_t> file_offsets) {
  std::vector<Frames> result(file_offsets.size());
  // From the kernel's cache: a file system of the process could block another look.
  struct statx status;
  if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &status) != 0) return result;
  const Version version(status.stx_dev_major, status.stx_dev_minor, status.stx_ino, status.stx_ctime.tv_sec,
                        status.stx_ctime.tv_nsec, status.stx_size);
  auto [entry, inserted] = files_.try_emplace(version);
  File& file = entry->second;
  if (inserted) {
    file.used = used_.insert(used_.begin(), version);
  } else {
    used_.splice(used_.begin(), used_, file.used);
  }

  std::vector<uint64_t> unknown;
  for (uint64_t offset : file_offsets) {
    if (!file.by_offset.contains(offset)) unknown.push_back(offset);
  }
  std::sort(unknown.begin(), unknown.end());
  unknown.erase(std::unique(unknown.begin(), unknown.end()), unknown.end());
  for (absl::Span<const uint64_t> rest = unknown; !rest.empty(); rest.remove_prefix(std::min(kMaxBatch, rest.size()))) {
    Ask(file, mapping, fd, rest.subspan(0, kMaxBatch));
  }
  for (size_t index = 0; index < file_offsets.size(); index++) {
    const auto found = file.by_offset.find(file_offsets[index]);
    if (found != file.by_offset.end()) result[index] = found->second;
  }

  const uint64_t bytes = kFileBytes + file.names.bytes() + file.frames_bytes + file.by_offset.capacity() * kOffsetBytes;
  cached_bytes_ += bytes - file.bytes;
  file.bytes = bytes;
  MakeRoom();
  return result;
}

void Symbolizer::Ask(File& file, const elf::Mapping& mapping, int fd, absl::Span<const uint64_t> offsets) {
  std::vector<Frames> found(offsets.size());
  if (file.last_stage != Stage::kNone) {
    const Question question = {.fd = fd,
                               .mapped_path = mapping.path,
                               .debug_root = options_.debug_root,
                               .file_offsets = offsets,
                               .last_stage = file.last_stage};
    const Answer answer =
        RunConfined(options_.limits, fd, [&](const Confined& confined) { return Resolve(question, confined); });
    const Stage done = ReadAnswer(answer.bytes, file.names, found);
    // The child could not be made; the next call tries again.
    if (absl::IsUnavailable(answer.status)) return;
    const bool is_fault = absl::IsAborted(answer.status) || absl::IsDeadlineExceeded(answer.status) ||
                          absl::IsResourceExhausted(answer.status);
    if (is_fault) file.last_stage = std::min(file.last_stage, done);
  }
  for (size_t index = 0; index < offsets.size(); index++) {
    file.frames_bytes += found[index].capacity() * sizeof(Frame);
    file.by_offset.insert_or_assign(offsets[index], std::move(found[index]));
  }
}

void Symbolizer::MakeRoom() {
  while (cached_bytes_ > options_.cache_bytes && !used_.empty()) {
    auto oldest = files_.find(used_.back());
    cached_bytes_ -= oldest->second.bytes;
    files_.erase(oldest);
    used_.pop_back();
  }
}

}  // namespace heaptap::symbolize
