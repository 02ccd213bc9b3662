// SPDX-License-Identifier: Apache-2.0
//
// The executable mappings of a process, from /proc/PID/maps (proc_pid_maps(5)), and the files behind them.
#ifndef HEAPTAP_USERSPACE_ELF_MAPPINGS_H_
#define HEAPTAP_USERSPACE_ELF_MAPPINGS_H_

#include <sys/types.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/elf/file_descriptor.h"

namespace heaptap::elf {

// Executable mappings kept for one process, and the bytes of their paths. Large programs have hundreds of mappings with
// paths of about a hundred bytes; a hostile process can have any number, with paths of PATH_MAX bytes.
inline constexpr size_t kMaxMappings = 8192;
inline constexpr size_t kMaxPathBytes = 2 << 20;
// Bytes of /proc/PID/maps that are read. At the kernel's default limit of 65530 mappings it has about 7 MiB.
inline constexpr size_t kMaxMapsBytes = 32 << 20;

struct Mapping {
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t file_offset = 0;  // of the byte at `start`
  uint32_t device_major = 0;
  uint32_t device_minor = 0;
  uint64_t inode = 0;         // 0: no file
  std::string path = {};      // in the process's mount namespace; "[vdso]", "[anon:...]" or empty without a file
  bool deleted = false;       // the file has no name any more; `path` was its last one
  std::string build_id = {};  // bytes of the file's GNU build-id; empty: none, or not read

  friend bool operator==(const Mapping&, const Mapping&) = default;
};

// The executable mappings of one process over its life. An unloaded library stays until another mapping takes its
// place, because its addresses stay in the profile. Invariant: sorted by start, not empty, no two overlap.
// Thread-compatible.
class Mappings {
 public:
  class const_iterator : public std::map<uint64_t, Mapping>::const_iterator {
   public:
    using Base = std::map<uint64_t, Mapping>::const_iterator;
    using value_type = Mapping;
    using reference = const Mapping&;
    using pointer = const Mapping*;
    explicit const_iterator(Base base) : Base(base) {}
    reference operator*() const { return Base::operator*().second; }
    pointer operator->() const { return &Base::operator*().second; }
  };

  // Adds `mapping`, which replaces the parts of others that it overlaps. False: not added, because it is empty or there
  // is no room.
  bool Add(Mapping mapping);

  // The mapping that holds `address`, or null. Valid until the next Add.
  const Mapping* Find(uint64_t address) const;

  const_iterator begin() const { return const_iterator(by_start_.begin()); }
  const_iterator end() const { return const_iterator(by_start_.end()); }
  size_t size() const { return by_start_.size(); }
  bool empty() const { return by_start_.empty(); }

 private:
  std::map<uint64_t, Mapping> by_start_;
  size_t path_bytes_ = 0;  // sum over all paths
};

// The executable mappings of a text in the form of /proc/PID/maps, in its order. InvalidArgument: a line has another
// form. Thread-safe.
absl::StatusOr<std::vector<Mapping>> ParseMaps(absl::string_view text);

// The executable mappings of a process. NotFound: the process is gone, or has no memory (a zombie, a kernel thread).
// ResourceExhausted: more than kMaxMapsBytes. PermissionDenied. Thread-safe.
absl::StatusOr<std::vector<Mapping>> ReadExecutableMappings(pid_t pid);

// A mapped file, open for reading.
struct MappedFile {
  FileDescriptor file;
  // /proc/self/fd/N: a path to the same file, for system calls of this process that want a path (perf_event_open(2)).
  // No rename and no mount can put another file there. Valid as long as `file` is open.
  std::string path;
};

// Opens the file that the process has mapped, also if it was deleted or replaced, or is in another mount namespace;
// never another file of the same name. `mapping` must be a whole mapping as the kernel lists it now. Does not block.
// FailedPrecondition: not a regular file. NotFound: the process, the mapping or the file is gone. Unavailable: another
// process holds a lease on the file. PermissionDenied. Thread-safe.
absl::StatusOr<MappedFile> OpenMapped(pid_t pid, const Mapping& mapping);

// The same for a process that is gone: opens the mapping's path below the root of this process, if it is the mapped
// file. Looks up the path in the kernel's cache only, so that no file system can block it. Errors as OpenMapped.
// Thread-safe.
absl::StatusOr<MappedFile> OpenByPath(const Mapping& mapping);

}  // namespace heaptap::elf

#endif  // HEAPTAP_USERSPACE_ELF_MAPPINGS_H_
