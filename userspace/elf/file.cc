// SPDX-License-Identifier: Apache-2.0
#include "userspace/elf/file.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace heaptap::elf {
namespace {

constexpr uint64_t kBlock = 512;  // bytes in a unit of st_blocks

// A sparse file can claim any size, so its blocks bound what is read. A file on a compressing file system may be larger
// than its blocks, by at most this factor.
constexpr uint64_t kMostCompression = 32;

// A table of `count` entries of type Entry.
template <typename Entry>
absl::StatusOr<std::vector<Entry>> ReadTable(const File& file, uint64_t offset, uint64_t count, uint64_t entry_size,
                                             absl::string_view what) {
  if (count == 0) return std::vector<Entry>();
  if (entry_size != sizeof(Entry)) return absl::InvalidArgumentError(absl::StrCat(what, ": wrong size of an entry"));
  auto bytes = file.Read(offset, count * sizeof(Entry), count * sizeof(Entry), what);
  if (!bytes.ok()) return bytes.status();
  std::vector<Entry> table(count);
  memcpy(table.data(), bytes->data(), bytes->size());
  return table;
}

bool IsForThisMachine(const Elf64_Ehdr& header) {
  return memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64 &&
         header.e_ident[EI_DATA] == ELFDATA2LSB && header.e_machine == EM_X86_64 &&
         (header.e_type == ET_EXEC || header.e_type == ET_DYN);
}

std::string NameAt(const std::string& names, uint64_t offset) {
  if (offset >= names.size()) return "";
  const char* name = names.data() + offset;
  return std::string(name, strnlen(name, std::min<uint64_t>(names.size() - offset, kMaxSectionName)));
}

}  // namespace

absl::StatusOr<uint64_t> File::ReadSome(uint64_t offset, void* bytes, uint64_t size) const {
  constexpr uint64_t kEnd = std::numeric_limits<off_t>::max();
  if (offset > kEnd || size > kEnd - offset) return 0;
  if (fd_ == kInMemory) {
    if (offset >= bytes_.size()) return 0;
    const absl::string_view found = bytes_.substr(offset, size);
    memcpy(bytes, found.data(), found.size());
    return found.size();
  }
  uint64_t done = 0;
  while (done < size) {
    ssize_t count = pread(fd_, static_cast<char*>(bytes) + done, size - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::ErrnoToStatus(errno, "cannot read the file");
    if (count == 0) break;
    done += static_cast<uint64_t>(count);
  }
  return done;
}

absl::StatusOr<File> File::OpenBytes(absl::string_view bytes) { return Open(File(kInMemory, bytes)); }

absl::StatusOr<File> File::Open(int fd) {
  struct stat status;
  if (fstat(fd, &status) != 0) return absl::ErrnoToStatus(errno, "cannot read the file");
  File file(fd, "");
  file.backed_ = static_cast<uint64_t>(status.st_size);
  // Some file systems always say 0 blocks.
  if (status.st_blocks > 0) {
    file.backed_ = std::min(file.backed_, static_cast<uint64_t>(status.st_blocks) * kBlock * kMostCompression);
  }
  return Open(std::move(file));
}

absl::StatusOr<File> File::Open(File file) {
  Elf64_Ehdr header = {};
  auto size = file.ReadSome(0, &header, sizeof(header));
  if (!size.ok()) return size.status();
  if (*size < sizeof(header) || !IsForThisMachine(header)) {
    return absl::NotFoundError("not an ELF executable or shared object for x86-64");
  }

  if (header.e_phnum > kMaxSegments)
    return absl::InvalidArgumentError(absl::StrCat("more than ", kMaxSegments, " program headers"));
  auto segments = ReadTable<Elf64_Phdr>(file, header.e_phoff, header.e_phnum, header.e_phentsize, "program headers");
  if (!segments.ok()) return segments.status();
  file.segments_.reserve(segments->size());
  for (const Elf64_Phdr& segment : *segments) {
    file.segments_.push_back({.type = segment.p_type,
                              .flags = segment.p_flags,
                              .offset = segment.p_offset,
                              .file_size = segment.p_filesz,
                              .address = segment.p_vaddr,
                              .alignment = segment.p_align});
  }

  // Only object files have more sections than e_shnum can hold; such a file counts as one without sections.
  auto sections = ReadTable<Elf64_Shdr>(file, header.e_shoff, header.e_shnum, header.e_shentsize, "section headers");
  if (!sections.ok()) return sections.status();
  std::string names;
  if (header.e_shstrndx != SHN_UNDEF && header.e_shstrndx < sections->size()) {
    const Elf64_Shdr& table = (*sections)[header.e_shstrndx];
    auto bytes = file.Read(table.sh_offset, table.sh_size, kMaxSectionNameBytes, "section names");
    if (!bytes.ok()) return bytes.status();
    names = *std::move(bytes);
  }
  file.sections_.reserve(sections->size());
  for (const Elf64_Shdr& section : *sections) {
    file.sections_.push_back({.name = NameAt(names, section.sh_name),
                              .type = section.sh_type,
                              .flags = section.sh_flags,
                              .offset = section.sh_offset,
                              .size = section.sh_size,
                              .address = section.sh_addr,
                              .alignment = section.sh_addralign});
  }
  return file;
}

const Section* File::FindSection(absl::string_view name) const {
  for (const Section& section : sections_) {
    if (section.name == name) return &section;
  }
  return nullptr;
}

absl::StatusOr<std::string> File::Read(uint64_t offset, uint64_t size, uint64_t limit, absl::string_view what) const {
  if (size > limit) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": ", size, " bytes, more than the limit of ", limit));
  }
  if (size > backed_)
    return absl::InvalidArgumentError(absl::StrCat(what, ": beyond the end of the file's blocks on disk"));
  std::string bytes(size, '\0');
  auto count = ReadSome(offset, bytes.data(), size);
  if (!count.ok()) return count.status();
  if (*count < size) return absl::InvalidArgumentError(absl::StrCat(what, ": beyond the end of the file"));
  return bytes;
}

std::optional<uint64_t> File::AddressToOffset(uint64_t address, uint32_t flags) const {
  for (const Segment& segment : segments_) {
    if (segment.type != PT_LOAD || (segment.flags & flags) != flags) continue;
    if (address < segment.address || address - segment.address >= segment.file_size) continue;
    uint64_t distance = address - segment.address;
    if (distance > std::numeric_limits<uint64_t>::max() - segment.offset) continue;
    return segment.offset + distance;
  }
  return std::nullopt;
}

}  // namespace heaptap::elf
