// SPDX-License-Identifier: Apache-2.0
//
// The executable mappings of a process: what was mapped where, from /proc/PID/maps (proc_pid_maps(5)).
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

// Executable mappings kept for one process, and the bytes of their paths. Large programs have some hundreds, of some
// hundred bytes each; a hostile process can have any number of them, each with a path of PATH_MAX bytes.
inline constexpr size_t kMaxMappings = 8192;
inline constexpr size_t kMaxPathBytes = 2 << 20;
// Bytes of /proc/PID/maps that are read. 65530 mappings, the kernel's default limit, take about 7 MiB.
inline constexpr size_t kMaxMapsBytes = 32 << 20;

struct Mapping {
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t file_offset = 0;  // of the byte at `start`
  uint32_t device_major = 0;
  uint32_t device_minor = 0;
  uint64_t inode = 0;         // 0: no file
  std::string path = {};      // in the process's mount name space; "[vdso]", "[anon:...]" or empty if there is no file
  bool deleted = false;       // the file had no name any more; `path` is the last one
  std::string build_id = {};  // bytes of the file's GNU build-id; empty: it has none, or nobody has looked

  friend bool operator==(const Mapping&, const Mapping&) = default;
};

// The executable mappings of one process over its life: a library that was unloaded stays until something takes its
// place, because its addresses stay in the profile. Invariant: sorted by start, no two overlap, none is empty.
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

  // Adds `mapping`; what it overlaps is cut down to what it leaves over. False if it was not added: it is empty, or
  // there is no room for it.
  bool Add(Mapping mapping);

  // The mapping that holds `address`, or null. Valid until the next Add.
  const Mapping* Find(uint64_t address) const;

  const_iterator begin() const { return const_iterator(by_start_.begin()); }
  const_iterator end() const { return const_iterator(by_start_.end()); }
  size_t size() const { return by_start_.size(); }
  bool empty() const { return by_start_.empty(); }

 private:
  std::map<uint64_t, Mapping> by_start_;
  size_t path_bytes_ = 0;  // of all of them
};

// The executable mappings of a text in the form of /proc/PID/maps, in its order. InvalidArgument if a line is not of
// that form. Thread-safe.
absl::StatusOr<std::vector<Mapping>> ParseMaps(absl::string_view text);

// The executable mappings of a process. NotFound if it is gone or has no memory of its own (a zombie, a kernel thread),
// PermissionDenied, ResourceExhausted beyond kMaxMapsBytes. Thread-safe.
absl::StatusOr<std::vector<Mapping>> ReadExecutableMappings(pid_t pid);

// A mapped file, open for reading.
struct MappedFile {
  FileDescriptor file;
  // A path to the very same file for system calls of this process that take a path (perf_event_open(2)), as long as
  // `file` is open: /proc/self/fd/N. No rename or new mount can put another file there.
  std::string path;
};

// Opens the file that the process has mapped there, not one that merely has its name: deleted and replaced files, and
// those of other mount name spaces, too. `mapping` must be a whole mapping as the kernel lists it at present.
// Opens regular files only, and waits for nobody: where someone holds a lease on the file it is Unavailable.
// FailedPrecondition: no regular file is mapped there. NotFound: the process, the mapping or the file is gone.
// PermissionDenied. Thread-safe.
absl::StatusOr<MappedFile> OpenMapped(pid_t pid, const Mapping& mapping);

// The same for a process that is gone: the file that has the mapping's path in this process's own root, if it is the
// mapped one. Looks only at what the kernel has at hand, so no file system can make it wait for that. Errors as
// OpenMapped's. Thread-safe.
absl::StatusOr<MappedFile> OpenByPath(const Mapping& mapping);

}  // namespace heaptap::elf

#endif  // HEAPTAP_USERSPACE_ELF_MAPPINGS_H_
