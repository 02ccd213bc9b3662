// SPDX-License-Identifier: Apache-2.0
#include "userspace/symbolize/debug_files.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <zlib.h>

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace heaptap::symbolize {
namespace {

// Bound of a link's section: a path, then padding and a checksum, or a build-id.
constexpr uint64_t kMaxLinkBytes = PATH_MAX + kMaxBuildIdBytes;

// Opens the regular file `path` below the folder `root`, if only root may write it.
absl::StatusOr<elf::FileDescriptor> OpenBelow(absl::string_view root, absl::string_view path) {
  elf::FileDescriptor folder(open(std::string(root).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return absl::ErrnoToStatus(errno, root);
  struct open_how how = {};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  const std::string name(absl::StripPrefix(path, "/"));
  elf::FileDescriptor file(static_cast<int>(syscall(SYS_openat2, folder.get(), name.c_str(), &how, sizeof(how))));
  if (!file.valid()) return absl::ErrnoToStatus(errno, path);
  struct stat status;
  if (fstat(file.get(), &status) != 0) return absl::ErrnoToStatus(errno, path);
  if (!S_ISREG(status.st_mode)) return absl::NotFoundError(absl::StrCat(path, ": not a regular file"));
  if (status.st_uid != 0 || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(path, ": other users than root may write it"));
  }
  return file;
}

absl::StatusOr<elf::FileDescriptor> OpenByBuildId(absl::string_view build_id, absl::string_view root) {
  if (build_id.size() < 2) return absl::NotFoundError("no build-id");
  const std::string digits = absl::BytesToHexString(build_id);
  return OpenBelow(root, absl::StrCat(".build-id/", digits.substr(0, 2), "/", digits.substr(2), ".debug"));
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

absl::StatusOr<elf::FileDescriptor> OpenByLink(const elf::File& file, const std::string& build_id,
                                               absl::string_view mapped_path, absl::string_view root) {
  std::optional<Link> link = ReadLink(file, ".gnu_debuglink");
  uint32_t checksum;
  if (!link.has_value() || link->rest.size() < sizeof(checksum) || link->name.find('/') != std::string::npos) {
    return absl::NotFoundError("no link to a debug file");
  }
  // The checksum is the last word of the section, after padding.
  memcpy(&checksum, link->rest.data() + link->rest.size() - sizeof(checksum), sizeof(checksum));
  const absl::string_view folder = mapped_path.substr(0, mapped_path.rfind('/') + 1);
  absl::StatusOr<elf::FileDescriptor> found = OpenBelow(root, absl::StrCat(folder, link->name));
  if (!found.ok()) return found;
  const std::string found_id = BuildIdOf(found->get());
  if (!build_id.empty() && !found_id.empty() && build_id != found_id) {
    return absl::NotFoundError(absl::StrCat(link->name, ": it belongs to another version of the file"));
  }
  absl::StatusOr<uint32_t> sum = Checksum(found->get());
  if (!sum.ok()) return sum.status();
  if (*sum != checksum) return absl::NotFoundError(absl::StrCat(link->name, ": its checksum is not that of the link"));
  return found;
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
        description.size() == header.n_descsz && description.size() <= kMaxBuildIdBytes) {
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

absl::StatusOr<elf::FileDescriptor> OpenDebugFile(const elf::File& file, absl::string_view mapped_path,
                                                  absl::string_view root) {
  const std::string build_id = ReadBuildId(file);
  absl::StatusOr<elf::FileDescriptor> found = OpenByBuildId(build_id, root);
  // The file under this build-id may have another one by mistake.
  if (found.ok() && BuildIdOf(found->get()) == build_id) return found;
  absl::StatusOr<elf::FileDescriptor> linked = OpenByLink(file, build_id, mapped_path, root);
  if (linked.ok() || !absl::IsPermissionDenied(found.status())) return linked;
  return found;
}

absl::StatusOr<elf::FileDescriptor> OpenSharedDebugFile(const elf::File& file, absl::string_view root) {
  const std::optional<Link> link = ReadLink(file, ".gnu_debugaltlink");
  if (!link.has_value() || link->rest.size() > kMaxBuildIdBytes) return absl::NotFoundError("no shared debug file");
  absl::StatusOr<elf::FileDescriptor> found = OpenByBuildId(link->rest, root);
  absl::string_view name = link->name;
  if (!found.ok() && absl::ConsumePrefix(&name, root)) found = OpenBelow(root, name);
  return found;
}

}  // namespace heaptap::symbolize
