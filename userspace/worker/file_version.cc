// SPDX-License-Identifier: Apache-2.0
#include "userspace/worker/file_version.h"

#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <type_traits>

#include "absl/status/status.h"

namespace heaptap::worker {

static_assert(sizeof(FileVersion) == kVersionBytes && std::has_unique_object_representations_v<FileVersion>);

FileVersion ToVersion(const struct statx& status) {
  return {.device_major = status.stx_dev_major,
          .device_minor = status.stx_dev_minor,
          .inode = status.stx_ino,
          .changed_seconds = status.stx_ctime.tv_sec,
          .changed_nanoseconds = status.stx_ctime.tv_nsec,
          .size = status.stx_size};
}

FileVersion ToVersion(const struct stat& status) {
  return {.device_major = major(status.st_dev),
          .device_minor = minor(status.st_dev),
          .inode = status.st_ino,
          .changed_seconds = status.st_ctim.tv_sec,
          .changed_nanoseconds = static_cast<uint64_t>(status.st_ctim.tv_nsec),
          .size = static_cast<uint64_t>(status.st_size)};
}

std::string Encode(const FileVersion& version) {
  return std::string(reinterpret_cast<const char*>(&version), sizeof(version));
}

absl::StatusOr<FileVersion> DecodeVersion(absl::string_view bytes) {
  FileVersion version;
  if (bytes.size() < sizeof(version)) return absl::InvalidArgumentError("not the version of a file");
  memcpy(&version, bytes.data(), sizeof(version));
  return version;
}

}  // namespace heaptap::worker
