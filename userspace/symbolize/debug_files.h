// SPDX-License-Identifier: Apache-2.0
//
// Debug files: debug information that a distribution keeps apart from its programs.
//
// The mapped file, which may be hostile, names its debug file by build-id or by path. Only a regular file below one
// folder is opened, and only if it belongs to root and no other user may write it.
//
// Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_SYMBOLIZE_DEBUG_FILES_H_
#define HEAPTAP_USERSPACE_SYMBOLIZE_DEBUG_FILES_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/elf/file.h"
#include "userspace/elf/file_descriptor.h"

namespace heaptap::symbolize {

// Bytes of a build-id. Linkers make 8 to 20, and accept more on their command line.
inline constexpr size_t kMaxBuildIdBytes = 64;

// The bytes of a file's build-id; empty: none.
std::string ReadBuildId(const elf::File& file);

// Opens the debug file of `file` under `root`: .build-id/xx/yyyy.debug, or the file that .gnu_debuglink names in the
// folder of `mapped_path`. By .gnu_debuglink, the checksum must be that of the link, and the build-ids must be equal if
// both files have one. NotFound: none, or that of another version. PermissionDenied: other users than root may write
// it.
absl::StatusOr<elf::FileDescriptor> OpenDebugFile(const elf::File& file, absl::string_view mapped_path,
                                                  absl::string_view root);

// Opens the file with which `file` (or its debug file) shares debug information, as made by dwz(1): by build-id, or by
// the path in .gnu_debugaltlink if that is under `root`. Does not check the version, because elf::File does not read
// object files; libdw does. Errors as above.
absl::StatusOr<elf::FileDescriptor> OpenSharedDebugFile(const elf::File& file, absl::string_view root);

}  // namespace heaptap::symbolize

#endif  // HEAPTAP_USERSPACE_SYMBOLIZE_DEBUG_FILES_H_
