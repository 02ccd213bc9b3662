// SPDX-License-Identifier: Apache-2.0
#include "userspace/crews/symbolizer.h"

#include <algorithm>
#include <utility>

namespace heaptap::worker {
namespace {

using symbolize::Frame;
using symbolize::Frames;
using symbolize::Stage;

// Memory of a slot of the table and the allocation of its frames.
constexpr uint64_t kOffsetBytes = sizeof(std::pair<uint64_t, Frames>) + 1 + 16;
constexpr uint64_t kFileBytes = 512;

}  // namespace

Symbolizer::Symbolizer(Crews& crews, Options options) : crews_(crews), options_(std::move(options)) {}

std::vector<Frames> Symbolizer::Symbolize(uid_t user, const JobFile& job_file,
                                          absl::Span<const uint64_t> file_offsets) {
  gap_ = symbolize::Gap::kNone;
  std::vector<Frames> result(file_offsets.size());
  const Answer answer = crews_.Do(user, {.job = Job::kDebugLinks, .file = job_file}, options_.limits);
  const absl::StatusOr<FileFacts> facts = DecodeFacts(answer.bytes);
  if (!answer.status.ok() || !facts.ok()) return result;
  // A build other than the mapped one has other functions at these offsets.
  if (const std::string& mapped = job_file.mapping.build_id; !mapped.empty() && mapped != facts->links.build_id) {
    return result;
  }
  const FileVersion& version = facts->version;
  const Call call = {.user = user, .file = job_file, .links = facts->links};
  auto [entry, inserted] = files_.try_emplace(version);
  File& file = entry->second;
  if (inserted) {
    file.used = used_.insert(used_.begin(), version);
  } else {
    used_.splice(used_.begin(), used_, file.used);
  }
  if (file.last_stage != Stage::kDwarf && file.retry.IsDue(base::Now())) {
    file.last_stage = Stage::kDwarf;
    file.by_offset.clear();
    file.frames_bytes = 0;
  }

  std::vector<uint64_t> unknown;
  for (uint64_t offset : file_offsets) {
    if (!file.by_offset.contains(offset)) unknown.push_back(offset);
  }
  std::sort(unknown.begin(), unknown.end());
  unknown.erase(std::unique(unknown.begin(), unknown.end()), unknown.end());
  for (absl::Span<const uint64_t> rest = unknown; !rest.empty(); rest.remove_prefix(std::min(kMaxBatch, rest.size()))) {
    Ask(file, call, rest.subspan(0, kMaxBatch));
  }
  for (size_t index = 0; index < file_offsets.size(); index++) {
    const auto found = file.by_offset.find(file_offsets[index]);
    if (found != file.by_offset.end()) result[index] = found->second;
  }

  gap_ = file.gap;
  const uint64_t bytes = kFileBytes + file.names.bytes() + file.frames_bytes + file.by_offset.capacity() * kOffsetBytes;
  cached_bytes_ += bytes - file.bytes;
  file.bytes = bytes;
  MakeRoom();
  return result;
}

absl::StatusOr<symbolize::DebugLinks> Symbolizer::AskForDebugFile(const File& file, const Call& call, int fetched) {
  Request request = {.job = Job::kDebugLinks, .file = call.file, .question = Encode(call.links)};
  if (fetched >= 0) {
    request.descriptors = {fetched};
  } else {
    request.root = options_.debug_root;
    request.paths = *file.paths;
  }
  const Answer answer = crews_.Do(call.user, request, options_.limits);
  if (!answer.status.ok()) return answer.status;
  absl::StatusOr<FileFacts> facts = DecodeFacts(answer.bytes);
  if (!facts.ok()) return facts.status();
  return std::move(facts->links);
}

absl::StatusOr<symbolize::DebugLinks> Symbolizer::FindLinked(File& file, const Call& call) {
  for (base::FileDescriptor& candidate : options_.open_linked(call.links, call.file.mapping.path)) {
    absl::StatusOr<symbolize::DebugLinks> links = AskForDebugFile(file, call, candidate.get());
    if (!links.ok()) continue;
    file.fetched_debug = std::move(candidate);
    return links;
  }
  return absl::NotFoundError("no debug file");
}

absl::StatusOr<symbolize::DebugLinks> Symbolizer::FetchDebugFile(File& file, const Call& call) {
  const std::string& path = call.file.mapping.path;
  base::FileDescriptor debug = options_.fetch(call.links.build_id, path);
  if (!debug.valid()) return absl::NotFoundError("no debug file");
  absl::StatusOr<symbolize::DebugLinks> links = AskForDebugFile(file, call, debug.get());
  if (!links.ok()) return links;
  file.fetched_debug = std::move(debug);
  if (!links->shared_build_id.empty()) file.fetched_shared = options_.fetch(links->shared_build_id, path);
  return links;
}

void Symbolizer::FindDebugPaths(File& file, const Call& call) {
  file.paths = symbolize::DebugPaths(call.links, call.file.mapping.path);
  file.debug_paths = file.paths->size();
  // The file with debug information names the one that it shares.
  symbolize::DebugLinks informed = call.links;
  if (!call.links.has_debug_information) {
    absl::StatusOr<symbolize::DebugLinks> links = AskForDebugFile(file, call, -1);
    if (absl::IsNotFound(links.status()) && options_.open_linked != nullptr && !call.links.link_name.empty()) {
      links = FindLinked(file, call);
    }
    if (absl::IsNotFound(links.status()) && options_.fetch != nullptr && !call.links.build_id.empty()) {
      links = FetchDebugFile(file, call);
    }
    if (!links.ok()) return;
    informed = *std::move(links);
  }
  const bool names_shared = !informed.shared_name.empty() && !file.fetched_shared.valid();
  if (names_shared && options_.open_shared != nullptr) {
    file.fetched_shared = options_.open_shared(informed, call.file.mapping.path);
  }
  for (std::string& path : symbolize::SharedPaths(informed, options_.debug_root))
    file.paths->push_back(std::move(path));
}

void Symbolizer::Ask(File& file, const Call& call, absl::Span<const uint64_t> offsets) {
  std::vector<Frames> found(offsets.size());
  if (file.last_stage != Stage::kNone) {
    jobs_++;
    if (!file.paths.has_value()) FindDebugPaths(file, call);
    Request request = {.job = Job::kSymbols, .file = call.file, .root = options_.debug_root, .paths = *file.paths};
    for (const base::FileDescriptor* fetched : {&file.fetched_debug, &file.fetched_shared}) {
      if (fetched->valid()) request.descriptors.push_back(fetched->get());
    }
    request.question = SymbolsQuestion({.debug_files = file.fetched_debug.valid() ? 1U : 0,
                                        .shared_files = file.fetched_shared.valid() ? 1U : 0,
                                        .debug_paths = static_cast<uint32_t>(file.debug_paths),
                                        .last_stage = static_cast<uint32_t>(file.last_stage)},
                                       offsets);
    const Answer answer = crews_.Do(call.user, request, options_.limits);
    const symbolize::AnswerEnd end = symbolize::ReadAnswer(answer.bytes, file.names, found);
    if (end.gap != symbolize::Gap::kNone) file.gap = end.gap;
    // Not the file's fault; the next call tries again.
    if (absl::IsUnavailable(answer.status)) return;
    if (answer.IsFault()) {
      file.last_stage = std::min(file.last_stage, end.done);
      file.retry.Fail(base::RetryPauses{}, base::Now());
    }
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

}  // namespace heaptap::worker
