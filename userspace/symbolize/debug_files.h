// SPDX-License-Identifier: Apache-2.0
//
// Files of debug information that a distribution keeps apart from its programs.
//
// The mapped file, which may be hostile, says which one it wants: by its build-id, else by a name. What is opened is
// only ever a regular file below one folder, that belongs to root and that nobody else may write.
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

// Bytes of build-ids; linkers make 8 to 20, and accept more on their command line.
inline constexpr size_t kMaxBuildIdBytes = 64;

// The build-id of a file, in bytes; empty if it has none.
std::string ReadBuildId(const elf::File& file);

// Opens the debug file of `file` under `root`: .build-id/xx/yyyy.debug, or what .gnu_debuglink names, in the folder
// that `mapped_path` lies in. That one's checksum must be the one that the link has, and build-ids, if both have one,
// must be equal. NotFound: there is none, or it is not the right one. PermissionDenied: others than root could have
// written it.
absl::StatusOr<elf::FileDescriptor> OpenDebugFile(const elf::File& file, absl::string_view mapped_path,
                                                  absl::string_view root);

// Opens the file that `file` (which may be a debug file) shares pieces of debug information with, as dwz(1) makes it:
// by build-id, or where .gnu_debugaltlink says, if that is under `root`. Whether it is the right version is for libdw
// to say: it is an object file, which elf::File does not read. Errors as above.
absl::StatusOr<elf::FileDescriptor> OpenSharedDebugFile(const elf::File& file, absl::string_view root);

}  // namespace heaptap::symbolize

#endif  // HEAPTAP_USERSPACE_SYMBOLIZE_DEBUG_FILES_H_
