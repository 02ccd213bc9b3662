// SPDX-License-Identifier: Apache-2.0
#include "userspace/elf/probes.h"

#include <elf.h>
#include <string.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "userspace/elf/file.h"

namespace heaptap::elf {
namespace {

constexpr absl::string_view kOwner("stapsdt\0", 8);
constexpr uint32_t kNoteType = 3;

// A part of the file with notes.
struct Region {
  uint64_t offset;
  uint64_t size;
  uint64_t alignment;
};

std::vector<Region> NoteRegions(const File& file) {
  std::vector<Region> regions;
  for (const Section& section : file.sections()) {
    bool holds_notes = section.type == SHT_NOTE || (section.name == ".note.stapsdt" && section.type == SHT_PROGBITS);
    if (holds_notes) regions.push_back({section.offset, section.size, section.alignment});
  }
  for (const Segment& segment : file.segments()) {
    if (segment.type == PT_NOTE) regions.push_back({segment.offset, segment.file_size, segment.alignment});
  }
  return regions;
}

// Takes `size` bytes and their padding off the front of `bytes`; nothing if `bytes` is shorter.
std::optional<absl::string_view> Take(absl::string_view& bytes, uint64_t size, uint64_t padded_size) {
  if (size > bytes.size()) return std::nullopt;
  absl::string_view taken = bytes.substr(0, size);
  // The last note of a region may lack its padding.
  bytes.remove_prefix(std::min<uint64_t>(padded_size, bytes.size()));
  return taken;
}

std::optional<absl::string_view> TakeString(absl::string_view& bytes) {
  size_t end = bytes.find('\0');
  if (end == absl::string_view::npos) return std::nullopt;
  return Take(bytes, end, end + 1);
}

class Reader {
 public:
  Reader(const File& file, absl::Span<const absl::string_view> providers) : file_(file), providers_(providers) {
    if (const Section* base = file.FindSection(".stapsdt.base")) base_ = base->address;
  }

  absl::StatusOr<std::vector<ProbeSite>> Read() && {
    for (const Region& region : NoteRegions(file_)) {
      auto bytes = file_.Read(region.offset, region.size, budget_, "notes");
      if (!bytes.ok()) return bytes.status();
      budget_ -= region.size;
      if (absl::Status status = ReadNotes(*bytes, region); !status.ok()) return status;
    }
    return std::move(sites_);
  }

 private:
  absl::Status ReadNotes(absl::string_view rest, const Region& region) {
    uint64_t alignment = region.alignment == 8 ? 8 : 4;
    auto pad = [alignment](uint64_t size) { return (size + alignment - 1) / alignment * alignment; };
    Elf64_Nhdr header;
    while (rest.size() >= sizeof(header)) {
      uint64_t offset = region.offset + (region.size - rest.size());
      memcpy(&header, rest.data(), sizeof(header));
      rest.remove_prefix(sizeof(header));
      uint64_t padded_name = pad(sizeof(header) + uint64_t{header.n_namesz}) - sizeof(header);
      std::optional<absl::string_view> owner = Take(rest, header.n_namesz, padded_name);
      std::optional<absl::string_view> description;
      if (owner.has_value()) description = Take(rest, header.n_descsz, pad(header.n_descsz));
      if (!description.has_value()) return absl::InvalidArgumentError("a note is cut short");
      if (header.n_type != kNoteType || *owner != kOwner) continue;
      // A section and a segment may hold the same note.
      if (!seen_.insert(offset).second) continue;
      if (absl::Status status = ReadProbe(*description); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status ReadProbe(absl::string_view description) {
    struct {
      uint64_t probe;
      uint64_t base;
      uint64_t semaphore;
    } addresses;
    std::optional<absl::string_view> fixed = Take(description, sizeof(addresses), sizeof(addresses));
    std::optional<absl::string_view> provider, name, arguments;
    if (fixed.has_value()) provider = TakeString(description);
    if (provider.has_value()) name = TakeString(description);
    if (name.has_value()) arguments = TakeString(description);
    if (!arguments.has_value()) return absl::InvalidArgumentError("the note of a probe is cut short");
    if (std::find(providers_.begin(), providers_.end(), *provider) == providers_.end()) return absl::OkStatus();

    memcpy(&addresses, fixed->data(), sizeof(addresses));
    // prelink(8) moves a whole library after it was linked, but leaves its notes as they are.
    uint64_t moved = base_.has_value() ? *base_ - addresses.base : 0;
    ProbeSite site = {.provider = std::string(*provider),
                      .name = std::string(*name),
                      .address = addresses.probe + moved,
                      .arguments = std::string(*arguments)};
    std::optional<uint64_t> offset = file_.AddressToOffset(site.address, PF_X);
    if (!offset.has_value()) return absl::OkStatus();
    site.file_offset = *offset;
    if (addresses.semaphore != 0) {
      // The kernel writes the semaphore in the process's private copy of its page, so the segment must be writable.
      std::optional<uint64_t> semaphore = file_.AddressToOffset(addresses.semaphore + moved, PF_W);
      if (!semaphore.has_value())
        return absl::InvalidArgumentError("the semaphore of a probe is outside all writable segments");
      site.semaphore_file_offset = *semaphore;
    }
    if (sites_.size() == kMaxProbeSites) {
      return absl::InvalidArgumentError(absl::StrCat("more than ", kMaxProbeSites, " probe sites"));
    }
    sites_.push_back(std::move(site));
    return absl::OkStatus();
  }

  const File& file_;
  const absl::Span<const absl::string_view> providers_;
  std::optional<uint64_t> base_;
  uint64_t budget_ = kMaxNoteBytes;
  absl::flat_hash_set<uint64_t> seen_;  // file offsets of notes
  std::vector<ProbeSite> sites_;
};

}  // namespace

absl::StatusOr<std::vector<ProbeSite>> ReadProbes(int fd, absl::Span<const absl::string_view> providers) {
  auto file = File::Open(fd);
  if (absl::IsNotFound(file.status())) return std::vector<ProbeSite>();
  if (!file.ok()) return file.status();
  return Reader(*file, providers).Read();
}

bool ArgumentsInRegisters(absl::string_view arguments, int count) {
  static constexpr absl::string_view kRegisters[] = {"8@%rdi", "8@%rsi", "8@%rdx", "8@%rcx", "8@%r8", "8@%r9"};
  if (count < 0 || count > static_cast<int>(std::size(kRegisters))) return false;
  std::vector<absl::string_view> words = absl::StrSplit(arguments, ' ', absl::SkipEmpty());
  if (words.size() < static_cast<size_t>(count)) return false;
  for (int i = 0; i < count; ++i) {
    if (absl::StripPrefix(words[i], "-") != kRegisters[i]) return false;
  }
  return true;
}

}  // namespace heaptap::elf
