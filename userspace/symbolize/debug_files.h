// SPDX-License-Identifier: Apache-2.0
//
// Debug files: debug information that a distribution keeps apart from its programs.
//
// A file, which may be hostile, names its debug file by build-id or by path. The paths here are below one folder, the
// root of all debug files. The caller opens only files there that no user but root may write.
//
// Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_SYMBOLIZE_DEBUG_FILES_H_
#define HEAPTAP_USERSPACE_SYMBOLIZE_DEBUG_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/elf/file.h"

namespace heaptap::symbolize {

// The bytes of a file's build-id; empty: none.
std::string ReadBuildId(const elf::File& file);

// What a file says about itself and its debug files. Texts are empty if it says nothing.
struct DebugLinks {
  std::string build_id = {};         // bytes
  std::string link_name = {};        // .gnu_debuglink: a name without folder
  uint32_t link_checksum = 0;        // CRC32 of the debug file
  std::string shared_name = {};      // .gnu_debugaltlink, as made by dwz(1): a path
  std::string shared_build_id = {};  // bytes
  bool has_debug_information = false;

  friend bool operator==(const DebugLinks&, const DebugLinks&) = default;
};
DebugLinks ReadDebugLinks(const elf::File& file);

// Converts links to a sequence of bytes, and back. InvalidArgument: the bytes, which may be hostile, are broken.
std::string Encode(const DebugLinks& links);
absl::StatusOr<DebugLinks> DecodeDebugLinks(absl::string_view bytes);

// Where the debug file of a file that was mapped as `mapped_path` may be, best first: .build-id/xx/yyyy.debug, and the
// name of .gnu_debuglink in the folder of `mapped_path`.
std::vector<std::string> DebugPaths(const DebugLinks& links, absl::string_view mapped_path);
// Where the file may be that shares its debug information with the file of `links`: by build-id, and by its path if the
// path is below `root`. libdw checks its version, because elf::File does not read object files.
std::vector<std::string> SharedPaths(const DebugLinks& links, absl::string_view root);

// Whether the file open at `fd` is the debug file: its build-id is the same; or one of them has none, and the checksum
// is the one in the link.
bool IsDebugFile(const DebugLinks& links, int fd);

}  // namespace heaptap::symbolize

#endif  // HEAPTAP_USERSPACE_SYMBOLIZE_DEBUG_FILES_H_
