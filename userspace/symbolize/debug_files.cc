// SPDX-License-Identifier: Apache-2.0
#include "userspace/symbolize/debug_files.h"

#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <protozero/pbf_builder.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "userspace/base/message_fields.h"
#include "userspace/elf/mappings.h"

namespace heaptap::symbolize {
namespace {

// The fields of a DebugLinks.
enum class Field : protozero::pbf_tag_type {
  kBuildId = 1,
  kLinkName = 2,
  kLinkChecksum = 3,
  kSharedName = 4,
  kSharedBuildId = 5,
  kHasDebugInformation = 6,
};

// Bound of a link's section: a path, then padding and a checksum, or a build-id.
constexpr uint64_t kMaxLinkBytes = PATH_MAX + elf::kMaxBuildIdBytes;

std::string BuildIdPath(absl::string_view build_id) {
  const std::string digits = absl::BytesToHexString(build_id);
  return absl::StrCat(".build-id/", digits.substr(0, 2), "/", digits.substr(2), ".debug");
}

std::string BuildIdOf(int fd) {
  absl::StatusOr<elf::File> file = elf::File::Open(fd);
  return file.ok() ? ReadBuildId(*file) : "";
}

absl::StatusOr<uint32_t> Checksum(int fd) {
  constexpr size_t kPiece = 1 << 16;
  auto buffer = std::make_unique<unsigned char[]>(kPiece);
  uLong sum = crc32(0, nullptr, 0);
  for (off_t at = 0;;) {
    const ssize_t count = pread(fd, buffer.get(), kPiece, at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::ErrnoToStatus(errno, "a debug file");
    if (count == 0) return static_cast<uint32_t>(sum);
    sum = crc32(sum, buffer.get(), static_cast<uInt>(count));
    at += count;
  }
}

// The contents of a section that begins with a name.
struct Link {
  std::string name;
  std::string rest;
};

std::optional<Link> ReadLink(const elf::File& file, absl::string_view section_name) {
  const elf::Section* section = file.FindSection(section_name);
  if (section == nullptr || section->type == SHT_NOBITS) return std::nullopt;
  absl::StatusOr<std::string> bytes = file.Read(section->offset, section->size, kMaxLinkBytes, section_name);
  if (!bytes.ok()) return std::nullopt;
  const size_t end = bytes->find('\0');
  if (end == 0 || end == std::string::npos) return std::nullopt;
  return Link{bytes->substr(0, end), bytes->substr(end + 1)};
}

// The GNU build-id in a sequence of notes.
std::string FindBuildId(absl::string_view notes) {
  while (notes.size() >= sizeof(Elf64_Nhdr)) {
    Elf64_Nhdr header;
    memcpy(&header, notes.data(), sizeof(header));
    notes.remove_prefix(sizeof(header));
    auto take = [&](uint64_t size) {
      absl::string_view taken = notes.substr(0, size);
      notes.remove_prefix(std::min<uint64_t>((size + 3) & ~uint64_t{3}, notes.size()));
      return taken;
    };
    const absl::string_view owner = take(header.n_namesz);
    const absl::string_view description = take(header.n_descsz);
    if (header.n_type == NT_GNU_BUILD_ID && owner == absl::string_view("GNU", 4) &&
        description.size() == header.n_descsz && description.size() <= elf::kMaxBuildIdBytes) {
      return std::string(description);
    }
  }
  return "";
}

}  // namespace

std::string ReadBuildId(const elf::File& file) {
  // A segment of notes has a few hundred bytes, and includes the section .note.gnu.build-id.
  constexpr uint64_t kMaxNotes = 1 << 16;
  for (const elf::Section& section : file.sections()) {
    if (section.type != SHT_NOTE) continue;
    absl::StatusOr<std::string> notes = file.Read(section.offset, section.size, kMaxNotes, section.name);
    if (!notes.ok()) continue;
    if (std::string build_id = FindBuildId(*notes); !build_id.empty()) return build_id;
  }
  for (const elf::Segment& segment : file.segments()) {
    if (segment.type != PT_NOTE) continue;
    absl::StatusOr<std::string> notes = file.Read(segment.offset, segment.file_size, kMaxNotes, "notes");
    if (!notes.ok()) continue;
    if (std::string build_id = FindBuildId(*notes); !build_id.empty()) return build_id;
  }
  return "";
}

DebugLinks ReadDebugLinks(const elf::File& file) {
  DebugLinks links;
  links.build_id = ReadBuildId(file);
  uint32_t checksum;
  std::optional<Link> link = ReadLink(file, ".gnu_debuglink");
  if (link.has_value() && link->rest.size() >= sizeof(checksum) && link->name.find('/') == std::string::npos) {
    // The checksum is the last word of the section, after padding.
    memcpy(&checksum, link->rest.data() + link->rest.size() - sizeof(checksum), sizeof(checksum));
    links.link_name = std::move(link->name);
    links.link_checksum = checksum;
  }
  link = ReadLink(file, ".gnu_debugaltlink");
  if (link.has_value() && link->rest.size() <= elf::kMaxBuildIdBytes) {
    links.shared_name = std::move(link->name);
    links.shared_build_id = std::move(link->rest);
  }
  const elf::Section* section = file.FindSection(".debug_info");
  if (section == nullptr) section = file.FindSection(".zdebug_info");
  links.has_debug_information = section != nullptr && section->type != SHT_NOBITS;
  return links;
}

std::string Encode(const DebugLinks& links) {
  std::string bytes;
  protozero::pbf_builder<Field> out(bytes);
  out.add_bytes(Field::kBuildId, links.build_id);
  out.add_bytes(Field::kLinkName, links.link_name);
  out.add_uint32(Field::kLinkChecksum, links.link_checksum);
  out.add_bytes(Field::kSharedName, links.shared_name);
  out.add_bytes(Field::kSharedBuildId, links.shared_build_id);
  out.add_bool(Field::kHasDebugInformation, links.has_debug_information);
  return bytes;
}

absl::StatusOr<DebugLinks> DecodeDebugLinks(absl::string_view bytes) {
  DebugLinks links;
  const absl::Status status = base::ReadFields<Field>(bytes, "the links of a file", [&](auto& in) {
    return in.Take(Field::kBuildId, links.build_id) || in.Take(Field::kLinkName, links.link_name) ||
           in.Take(Field::kLinkChecksum, links.link_checksum) || in.Take(Field::kSharedName, links.shared_name) ||
           in.Take(Field::kSharedBuildId, links.shared_build_id) ||
           in.Take(Field::kHasDebugInformation, links.has_debug_information);
  });
  if (!status.ok()) return status;
  if (links.build_id.size() > elf::kMaxBuildIdBytes || links.shared_build_id.size() > elf::kMaxBuildIdBytes) {
    return absl::InvalidArgumentError("not the links of a file: a build-id is too long");
  }
  return links;
}

std::vector<std::string> DebugPaths(const DebugLinks& links, absl::string_view mapped_path) {
  std::vector<std::string> paths;
  if (links.build_id.size() >= 2) paths.push_back(BuildIdPath(links.build_id));
  if (!links.link_name.empty()) {
    paths.push_back(absl::StrCat(mapped_path.substr(0, mapped_path.rfind('/') + 1), links.link_name));
  }
  return paths;
}

std::vector<std::string> SharedPaths(const DebugLinks& links, absl::string_view root) {
  std::vector<std::string> paths;
  if (links.shared_build_id.size() >= 2) paths.push_back(BuildIdPath(links.shared_build_id));
  absl::string_view name = links.shared_name;
  if (absl::ConsumePrefix(&name, root) && !name.empty()) paths.emplace_back(name);
  return paths;
}

bool IsDebugFile(const DebugLinks& links, int fd) {
  const std::string build_id = BuildIdOf(fd);
  if (!build_id.empty() && !links.build_id.empty()) return build_id == links.build_id;
  if (links.link_name.empty()) return false;
  const absl::StatusOr<uint32_t> sum = Checksum(fd);
  return sum.ok() && *sum == links.link_checksum;
}

}  // namespace heaptap::symbolize
