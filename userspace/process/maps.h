// SPDX-License-Identifier: Apache-2.0
//
// The mappings of a running process, and the files behind them.
#ifndef HEAPTAP_USERSPACE_PROCESS_MAPS_H_
#define HEAPTAP_USERSPACE_PROCESS_MAPS_H_

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/elf/mappings.h"

namespace heaptap::process {

// Bytes of /proc/PID/maps that are read. At the kernel's default limit of 65530 mappings it has about 7 MiB.
inline constexpr size_t kMaxMapsBytes = 32 << 20;

// The executable mappings of a process. NotFound: the process is gone, or has no memory (a zombie, a kernel thread).
// ResourceExhausted: more than kMaxMapsBytes. PermissionDenied. Thread-safe.
absl::StatusOr<std::vector<elf::Mapping>> ReadExecutableMappings(pid_t pid);

// The text of /proc/PID/maps, with the same errors, except that the text is empty for a process without memory.
absl::StatusOr<std::string> ReadMaps(pid_t pid);
// The mappings in that text.
absl::StatusOr<std::vector<elf::Mapping>> ParseExecutableMappings(pid_t pid, const absl::StatusOr<std::string>& maps);

// The name of the mapping's file among the files in /proc that show a process (proc_files.h).
std::string MapFile(const elf::Mapping& mapping);

// A mapped file, open for reading.
struct MappedFile {
  base::FileDescriptor file;
  // /proc/self/fd/N: a path to the same file, for system calls of this process that want a path (perf_event_open(2)).
  // No rename and no mount can put another file there. Valid as long as `file` is open.
  std::string path;
};

// Opens the file that the process has mapped, even if the file was deleted or replaced, or is in another mount
// namespace. Never opens another file of the same name. `mapping` must be a whole mapping as the kernel lists it now.
// Does not block. FailedPrecondition: not a regular file. NotFound: the process, the mapping or the file is gone.
// Unavailable: another process holds a lease on the file. PermissionDenied. Thread-safe.
absl::StatusOr<MappedFile> OpenMapped(pid_t pid, const elf::Mapping& mapping);

// Like OpenMapped, for a process that is gone: opens the mapping's path below the root of this process, if the file
// there is the mapped one. Looks up the path in the kernel's cache only, so that no file system can block the call. Has
// the errors of OpenMapped. Thread-safe.
absl::StatusOr<MappedFile> OpenByPath(const elf::Mapping& mapping);

}  // namespace heaptap::process

#endif  // HEAPTAP_USERSPACE_PROCESS_MAPS_H_
