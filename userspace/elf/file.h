// SPDX-License-Identifier: Apache-2.0
//
// The headers of a hostile ELF file.
//
// The user of the profiled program owns the file and may change it during the read. So the file is read with pread(2)
// and never mapped (a file truncated under a mapping raises SIGBUS), each byte that decides something is read once, and
// every size is checked against a bound before memory is allocated. libelf is not used here, because it allocates as
// much memory as a header says.
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

// Linkers make about a dozen; the kernel accepts 1170.
inline constexpr uint64_t kMaxSegments = 2048;
// The section names of large programs take kilobytes; with -ffunction-sections and without merging, megabytes.
inline constexpr uint64_t kMaxSectionNameBytes = 8 << 20;
// Longer section names are truncated.
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
  // Reads the headers of the file open at `fd`. The caller keeps `fd`, and keeps it open as long as it calls Read.
  // NotFound: not an ELF executable or shared object for this machine. InvalidArgument: broken, or out of bounds. Other
  // codes: reading failed.
  static absl::StatusOr<File> Open(int fd);
  // The same for a file in memory, whose bytes the caller keeps.
  static absl::StatusOr<File> OpenBytes(absl::string_view bytes);

  const std::vector<Segment>& segments() const { return segments_; }
  const std::vector<Section>& sections() const { return sections_; }

  // The first section of that name, or null.
  const Section* FindSection(absl::string_view name) const;

  // `size` bytes from `offset`. InvalidArgument if `size` exceeds `limit` or the file ends earlier; `what` names the
  // bytes in the message.
  absl::StatusOr<std::string> Read(uint64_t offset, uint64_t size, uint64_t limit, absl::string_view what) const;

  // The file offset of a link-time address, by a loaded segment that has all of `flags` (PF_*).
  std::optional<uint64_t> AddressToOffset(uint64_t address, uint32_t flags) const;

 private:
  static constexpr int kInMemory = -1;

  File(int fd, absl::string_view bytes) : fd_(fd), bytes_(bytes), backed_(bytes.size()) {}

  // Reads all headers.
  static absl::StatusOr<File> Open(File file);
  // Reads `size` bytes from `offset`, or less at the end of the file. Returns how many.
  absl::StatusOr<uint64_t> ReadSome(uint64_t offset, void* bytes, uint64_t size) const;

  int fd_;  // or kInMemory
  absl::string_view bytes_;
  uint64_t backed_;  // upper bound of the bytes that the file has on disk
  std::vector<Segment> segments_;
  std::vector<Section> sections_;
};

}  // namespace heaptap::elf

#endif  // HEAPTAP_USERSPACE_ELF_FILE_H_
