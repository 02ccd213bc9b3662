// SPDX-License-Identifier: Apache-2.0
//
// The identity of a file in one state. Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_WORKER_FILE_VERSION_H_
#define HEAPTAP_USERSPACE_WORKER_FILE_VERSION_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct stat;
struct statx;

namespace heaptap::worker {

// A changed file has another version.
struct FileVersion {
  uint32_t device_major = 0;
  uint32_t device_minor = 0;
  uint64_t inode = 0;
  int64_t changed_seconds = 0;
  uint64_t changed_nanoseconds = 0;
  uint64_t size = 0;

  bool IsSameFile(const FileVersion& other) const {
    return device_major == other.device_major && device_minor == other.device_minor && inode == other.inode;
  }
  friend auto operator<=>(const FileVersion&, const FileVersion&) = default;
};

FileVersion ToVersion(const struct statx& status);
FileVersion ToVersion(const struct stat& status);

// Writes a version as bytes, and reads it from the beginning of `bytes`.
inline constexpr size_t kVersionBytes = 40;
std::string Encode(const FileVersion& version);
absl::StatusOr<FileVersion> DecodeVersion(absl::string_view bytes);

}  // namespace heaptap::worker

#endif  // HEAPTAP_USERSPACE_WORKER_FILE_VERSION_H_
