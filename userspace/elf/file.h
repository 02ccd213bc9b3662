// SPDX-License-Identifier: Apache-2.0
//
// The headers of a hostile ELF file.
//
// The file belongs to whoever runs the profiled program, and it may change while it is read. So it is read with
// pread(2) and never mapped (a file cut short under a mapping is a SIGBUS), each byte that decides something is read
// once, and every size is held against a bound before memory is taken for it. That is why this is not libelf: libelf
// takes as much memory as a header tells it to.
//
// Format: System V ABI, chapters 4 and 5, as <elf.h> declares it; 64-bit little-endian x86-64 only.
#ifndef HEAPTAP_USERSPACE_ELF_FILE_H_
#define HEAPTAP_USERSPACE_ELF_FILE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace heaptap::elf {

// The linkers in use make about a dozen; the kernel accepts 1170.
inline constexpr uint64_t kMaxSegments = 2048;
// The section names of the largest programs take some kilobytes; with -ffunction-sections and no merging, megabytes.
inline constexpr uint64_t kMaxSectionNameBytes = 8 << 20;
// Longer section names are cut here.
inline constexpr uint64_t kMaxSectionName = 128;

struct Segment {
  uint32_t type = 0;   // PT_*
  uint32_t flags = 0;  // PF_*
  uint64_t offset = 0;
  uint64_t file_size = 0;
  uint64_t address = 0;  // link-time
  uint64_t alignment = 0;
};

struct Section {
  std::string name = {};
  uint32_t type = 0;   // SHT_*
  uint64_t flags = 0;  // SHF_*
  uint64_t offset = 0;
  uint64_t size = 0;
  uint64_t address = 0;  // link-time; 0 if not loaded
  uint64_t alignment = 0;
};

// Immutable after Open. Thread-compatible.
class File {
 public:
  // Reads the headers of the file open at `fd`, which stays the caller's and must stay open as long as Read is called.
  // NotFound: not an ELF executable or shared object for this machine. InvalidArgument: one, but broken or out of
  // bounds. Other codes: reading failed.
  static absl::StatusOr<File> Open(int fd);

  const std::vector<Segment>& segments() const { return segments_; }
  const std::vector<Section>& sections() const { return sections_; }

  // The first section of that name, or null.
  const Section* FindSection(absl::string_view name) const;

  // `size` bytes from `offset`. InvalidArgument if there are more than `limit` or the file ends before them; `what`
  // names them in the message.
  absl::StatusOr<std::string> Read(uint64_t offset, uint64_t size, uint64_t limit, absl::string_view what) const;

  // Where in the file the byte at a link-time address comes from, by a loaded segment that has all of `flags` (PF_*).
  std::optional<uint64_t> AddressToOffset(uint64_t address, uint32_t flags) const;

 private:
  File(int fd, uint64_t backed) : fd_(fd), backed_(backed) {}

  int fd_;
  uint64_t backed_;  // bytes that a piece of it can have
  std::vector<Segment> segments_;
  std::vector<Section> sections_;
};

}  // namespace heaptap::elf

#endif  // HEAPTAP_USERSPACE_ELF_FILE_H_
