// SPDX-License-Identifier: Apache-2.0
#include "userspace/worker/reader_jobs.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/elf/file.h"
#include "userspace/elf/mappings.h"
#include "userspace/elf/probes.h"
#include "userspace/symbolize/resolve.h"
#include "userspace/worker/dump_job.h"
#include "userspace/worker/plain_bytes.h"

namespace heaptap::worker {
namespace {

// The most executable segments of a file with probes. An ordinary program has one, among ten segments.
constexpr size_t kMaxCodeSegments = 64;

absl::StatusOr<FileVersion> VersionOf(int fd) {
  // From the kernel's cache: a file system of the process could block another look.
  struct statx status;
  if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &status) != 0) {
    return absl::NotFoundError("the file has no attributes");
  }
  return ToVersion(status);
}

absl::Status DoDebugLinks(const ReaderInput& input, WritePart write) {
  int fd = input.file;
  if (!input.question.empty()) {
    const absl::StatusOr<symbolize::DebugLinks> links = symbolize::DecodeDebugLinks(input.question);
    if (!links.ok()) return links.status();
    const auto found = std::find_if(input.others.begin(), input.others.end(),
                                    [&](int other) { return other >= 0 && symbolize::IsDebugFile(*links, other); });
    if (found == input.others.end()) return absl::NotFoundError("no debug file");
    fd = *found;
  }
  const absl::StatusOr<FileVersion> version = VersionOf(fd);
  if (!version.ok()) return version.status();
  const absl::StatusOr<elf::File> file = elf::File::Open(fd);
  write(absl::StrCat(Encode(*version), file.ok() ? Encode(symbolize::ReadDebugLinks(*file)) : ""));
  return absl::OkStatus();
}

absl::Status DoSymbols(const ReaderInput& input, WritePart write) {
  absl::string_view question = input.question;
  SymbolsHead head;
  const absl::Span<const int> others = input.others;
  if (!Take(question, head) || uint64_t{head.debug_files} + head.shared_files + head.debug_paths > others.size()) {
    return absl::InvalidArgumentError("no question");
  }
  // Files of this machine come before files that were given.
  const absl::Span<const int> paths = others.subspan(head.debug_files + head.shared_files);
  std::vector<int> debug_files(paths.begin(), paths.begin() + head.debug_paths);
  debug_files.insert(debug_files.end(), others.begin(), others.begin() + head.debug_files);
  std::vector<int> shared_files(paths.begin() + head.debug_paths, paths.end());
  const absl::Span<const int> given = others.subspan(head.debug_files, head.shared_files);
  shared_files.insert(shared_files.end(), given.begin(), given.end());
  std::vector<uint64_t> offsets(question.size() / sizeof(uint64_t));
  memcpy(offsets.data(), question.data(), offsets.size() * sizeof(uint64_t));
  return symbolize::Resolve({.fd = input.file,
                             .debug_files = debug_files,
                             .shared_files = shared_files,
                             .file_offsets = offsets,
                             .last_stage = static_cast<symbolize::Stage>(head.last_stage)},
                            write);
}

absl::Status DoTable(const ReaderInput& input, WritePart write) {
  const absl::StatusOr<FileVersion> version = VersionOf(input.file);
  if (!version.ok()) return version.status();
  write(Encode(*version));  // first, so that an answer with an error has it too
  const absl::StatusOr<elf::File> file = elf::File::Open(input.file);
  if (!file.ok()) return file.status();
  const std::string build_id = symbolize::ReadBuildId(*file);
  write(absl::StrCat(BytesOf(uint64_t{build_id.size()}), build_id));
  const absl::StatusOr<unwind::FileTable> table = unwind::ReadFileTable(*file);
  if (!table.ok()) return table.status();
  write(BytesOf(table->base));
  write(absl::string_view(reinterpret_cast<const char*>(table->rows.data()), table->rows.size() * sizeof(heaptap_row)));
  return absl::OkStatus();
}

absl::Status DoAllocator(const ReaderInput& input, WritePart write) {
  const absl::StatusOr<FileVersion> version = VersionOf(input.file);
  if (!version.ok()) return version.status();
  write(Encode(*version));
  const absl::StatusOr<process::AllocatorProbes> probes = process::ReadAllocatorProbes(input.file);
  if (!probes.ok()) return probes.status();
  const bool has_samples = probes->HasSamples();
  const absl::StatusOr<process::ControlPlace> control =
      has_samples ? process::FindControlPlace(input.file) : absl::NotFoundError("no allocator");
  const process::ControlPlace place = control.value_or(process::ControlPlace{});
  const uint64_t segments = std::min(place.segments.size(), kMaxCodeSegments);
  const uint64_t has_control = control.ok() ? 1 : 0;
  std::string answer = absl::StrCat(BytesOf(has_control), BytesOf(place.address), BytesOf(segments));
  for (size_t i = 0; i < segments; i++) absl::StrAppend(&answer, BytesOf(place.segments[i]));
  for (const elf::ProbeSite& site : probes->sites) {
    // A NUL ends each text; the text itself cannot hold one.
    absl::StrAppend(&answer, BytesOf(site.file_offset), BytesOf(site.semaphore_file_offset), site.provider,
                    absl::string_view("", 1), site.name, absl::string_view("", 1));
  }
  write(answer);
  return absl::OkStatus();
}

absl::Status DoMalloc(const ReaderInput& input, WritePart write) {
  const absl::StatusOr<elf::File> file = elf::File::Open(input.file);
  if (!file.ok()) return file.status();
  const process::MallocTraits traits = process::ReadMallocTraits(*file);
  write(BytesOf(traits));
  return absl::OkStatus();
}

bool TakeText(absl::string_view& bytes, std::string& text) {
  const size_t end = bytes.find('\0');
  if (end == absl::string_view::npos) return false;
  text = std::string(bytes.substr(0, end));
  bytes.remove_prefix(end + 1);
  return true;
}

// Takes the identity off the front of an answer to Job::kTable.
absl::Status TakeIdentity(absl::string_view& answer, IdentityOfFile& identity) {
  const absl::StatusOr<FileVersion> version = DecodeVersion(answer);
  if (!version.ok()) return version.status();
  identity.version = *version;
  answer.remove_prefix(kVersionBytes);
  if (answer.empty()) return absl::OkStatus();  // not ELF
  uint64_t size = 0;
  if (!Take(answer, size) || size > std::min(answer.size(), elf::kMaxBuildIdBytes)) {
    return absl::InvalidArgumentError("not a build-id");
  }
  identity.build_id = std::string(answer.substr(0, size));
  answer.remove_prefix(size);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<IdentityOfFile> DecodeIdentity(absl::string_view answer) {
  IdentityOfFile identity;
  const absl::Status status = TakeIdentity(answer, identity);
  if (!status.ok()) return status;
  return identity;
}

absl::StatusOr<TableOfFile> DecodeTable(absl::string_view answer) {
  TableOfFile result;
  if (absl::Status status = TakeIdentity(answer, result.identity); !status.ok()) return status;
  if (!Take(answer, result.table.base) || answer.size() % sizeof(heaptap_row) != 0) {
    return absl::InvalidArgumentError("not an unwind table");
  }
  result.table.rows.resize(answer.size() / sizeof(heaptap_row));
  if (!answer.empty()) memcpy(result.table.rows.data(), answer.data(), answer.size());
  const auto is_wrong = [](const heaptap_row& a, const heaptap_row& b) { return a.pc >= b.pc; };
  if (std::adjacent_find(result.table.rows.begin(), result.table.rows.end(), is_wrong) != result.table.rows.end()) {
    return absl::InvalidArgumentError("the rows of an unwind table are not in order");
  }
  return result;
}

absl::StatusOr<AllocatorOfFile> DecodeAllocator(absl::string_view answer) {
  const absl::StatusOr<FileVersion> version = DecodeVersion(answer);
  if (!version.ok()) return version.status();
  answer.remove_prefix(kVersionBytes);
  AllocatorOfFile result = {.version = *version};
  const absl::Status wrong = absl::InvalidArgumentError("not the probes of a file");
  uint64_t has_control = 0;
  process::ControlPlace place;
  uint64_t segments = 0;
  if (!Take(answer, has_control) || !Take(answer, place.address) || !Take(answer, segments) ||
      segments > kMaxCodeSegments) {
    return wrong;
  }
  place.segments.resize(segments);
  for (elf::Segment& segment : place.segments) {
    if (!Take(answer, segment)) return wrong;
  }
  if (has_control != 0) result.control = std::move(place);
  while (!answer.empty()) {
    elf::ProbeSite site;
    if (result.probes.sites.size() == elf::kMaxProbeSites || !Take(answer, site.file_offset) ||
        !Take(answer, site.semaphore_file_offset) || !TakeText(answer, site.provider) || !TakeText(answer, site.name)) {
      return wrong;
    }
    result.probes.sites.push_back(std::move(site));
  }
  return result;
}

absl::StatusOr<process::MallocTraits> DecodeMalloc(absl::string_view answer) {
  process::MallocTraits traits;
  if (!Take(answer, traits) || !answer.empty()) return absl::InvalidArgumentError("not the traits of a file");
  return traits;
}

absl::StatusOr<FileFacts> DecodeFacts(absl::string_view answer) {
  const absl::StatusOr<FileVersion> version = DecodeVersion(answer);
  if (!version.ok()) return version.status();
  absl::StatusOr<symbolize::DebugLinks> links = symbolize::DecodeDebugLinks(answer.substr(kVersionBytes));
  if (!links.ok()) return links.status();
  return FileFacts{.version = *version, .links = *std::move(links)};
}

std::string SymbolsQuestion(const SymbolsHead& head, absl::Span<const uint64_t> file_offsets) {
  return absl::StrCat(BytesOf(head), absl::string_view(reinterpret_cast<const char*>(file_offsets.data()),
                                                       file_offsets.size() * sizeof(uint64_t)));
}

ReaderJobs AllReaderJobs() {
  return {{Job::kDebugLinks, DoDebugLinks}, {Job::kSymbols, DoSymbols}, {Job::kTable, DoTable},
          {Job::kAllocator, DoAllocator},   {Job::kDump, ReadDumpFile}, {Job::kMalloc, DoMalloc}};
}

}  // namespace heaptap::worker
