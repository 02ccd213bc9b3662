// SPDX-License-Identifier: Apache-2.0
//
// The executable mappings of a process, in the form of /proc/PID/maps (proc_pid_maps(5)).
#ifndef HEAPTAP_USERSPACE_ELF_MAPPINGS_H_
#define HEAPTAP_USERSPACE_ELF_MAPPINGS_H_

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace heaptap::elf {

// Executable mappings kept for one process, and the bytes of their paths. Large programs have hundreds of mappings with
// paths of about a hundred bytes; a hostile process can have any number, with paths of PATH_MAX bytes.
inline constexpr size_t kMaxMappings = 8192;
inline constexpr size_t kMaxPathBytes = 2 << 20;

// Bytes of a build-id. Linkers make 8 to 20, and accept more on their command line.
inline constexpr size_t kMaxBuildIdBytes = 64;

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
// place, because its addresses stay in the profile. A copy shares the mappings with the original, because processes
// fork often. Invariant: sorted by start, not empty, no two overlap. Thread-compatible.
class Mappings {
 public:
  class const_iterator : public std::vector<std::shared_ptr<const Mapping>>::const_iterator {
   public:
    using Base = std::vector<std::shared_ptr<const Mapping>>::const_iterator;
    using value_type = Mapping;
    using reference = const Mapping&;
    using pointer = const Mapping*;
    explicit const_iterator(Base base) : Base(base) {}
    reference operator*() const { return *Base::operator*(); }
    pointer operator->() const { return Base::operator*().get(); }
  };

  // Adds `mapping`, which replaces the parts of others that it overlaps. False: not added, because it is empty or there
  // is no room.
  bool Add(Mapping mapping);

  // Sets the build-id of the mapping that begins where `mapping` does and is of the same file, if it has none. False:
  // there is no such mapping.
  bool SetBuildId(const Mapping& mapping, absl::string_view build_id);

  // The mapping that holds `address`, or null. Valid until the next change.
  const Mapping* Find(uint64_t address) const;

  const_iterator begin() const { return const_iterator(mappings_.begin()); }
  const_iterator end() const { return const_iterator(mappings_.end()); }
  size_t size() const { return mappings_.size(); }
  bool empty() const { return mappings_.empty(); }

 private:
  std::vector<std::shared_ptr<const Mapping>> mappings_;
  size_t path_bytes_ = 0;  // sum over all paths
};

// The executable mappings of a text in the form of /proc/PID/maps, in its order. InvalidArgument: a line has another
// form. Thread-safe.
absl::StatusOr<std::vector<Mapping>> ParseMaps(absl::string_view text);

// The build-id that hexadecimal digits stand for; nullopt for any other text, or one that is too long. Thread-safe.
std::optional<std::string> BuildIdOfHex(absl::string_view digits);

}  // namespace heaptap::elf

#endif  // HEAPTAP_USERSPACE_ELF_MAPPINGS_H_
