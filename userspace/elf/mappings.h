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

// The addresses from here on are beyond those of programs (bpf/unwind_step.h, HEAPTAP_USER_END). They stand for former
// mappings, and from twice this address on for code that is no longer known.
inline constexpr uint64_t kFormerBegin = uint64_t{1} << 47;
// Changes from one file to another that are kept for one process.
inline constexpr size_t kMaxFormer = 1024;
// Ranges of addresses whose former mappings are not known; if there are more, ranges are joined.
inline constexpr size_t kMaxForgotten = 16;

struct Mapping {
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t file_offset = 0;  // of the byte at `start`
  uint32_t device_major = 0;
  uint32_t device_minor = 0;
  uint64_t inode = 0;         // 0: no file
  uint32_t generation = 0;    // of the inode number, which a new file may take over; 0: not known
  std::string path = {};      // in the process's mount namespace; "[vdso]", "[anon:...]" or empty without a file
  bool deleted = false;       // the file has no name any more; `path` was its last one
  std::string build_id = {};  // bytes of the file's GNU build-id; empty: none, or not read

  friend bool operator==(const Mapping&, const Mapping&) = default;
};

// When a file was mapped, in nanoseconds of CLOCK_MONOTONIC: at `time` at the latest, and not before `since`. A `time`
// of 0: before all stacks.
struct WhenMapped {
  uint64_t since = 0;
  uint64_t time = 0;
};

// A mapping whose addresses hold another file's code now.
struct FormerMapping {
  std::shared_ptr<const Mapping> mapping;  // moved to addresses of its own, from kFormerBegin on
  uint64_t start = 0;                      // the address that it had
  uint64_t until = 0;                      // nanoseconds, CLOCK_MONOTONIC

  bool Held(uint64_t address) const { return address - start < mapping->end - mapping->start; }
};

// Addresses of former mappings that are not kept, or whose time of replacement is not certain. Stacks taken from
// `since` up to `until` can contain code of these mappings.
struct ForgottenRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t since = 0;
  uint64_t until = 0;
};

// The executable mappings of one process over its life. An unloaded library stays, because its addresses stay in the
// profile. When another file takes its place, it becomes a former mapping at other addresses. A copy shares the
// mappings with the original, because processes fork often. Invariant: sorted by start, not empty, no two overlap.
// Thread-compatible.
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
  // is no room, which `refused` counts.
  bool Add(Mapping mapping, const WhenMapped& when = {});

  // Adds a former mapping of a saved state. Former mappings come in the order of `until`. Mappings out of order are
  // ignored, and so are mappings that are empty or lie below kFormerBegin.
  void AddFormer(FormerMapping former);
  // Adds a range of a saved state.
  void AddForgotten(const ForgottenRange& range);

  // The address that stands for a return address of a stack. `time`: when the stack was taken, on the clock of
  // WhenMapped; nullopt: not certain. The result is `address` itself, or an address of a former mapping, or an address
  // that no mapping holds.
  uint64_t Place(uint64_t address, std::optional<uint64_t> time) const;

  // Sets the build-id of the mapping that begins where `mapping` does and is of the same file, if that mapping has
  // none, and of former mappings of the file. False: there is no such mapping.
  bool SetBuildId(const Mapping& mapping, absl::string_view build_id);

  // The mapping that holds `address`, or null. The mapping may be a former one. Valid until the next change.
  const Mapping* Find(uint64_t address) const;

  const_iterator begin() const { return const_iterator(mappings_.begin()); }
  const_iterator end() const { return const_iterator(mappings_.end()); }
  size_t size() const { return mappings_.size() + former_.size(); }
  bool empty() const { return mappings_.empty(); }
  const std::vector<FormerMapping>& former() const { return former_; }
  const std::vector<ForgottenRange>& forgotten() const { return forgotten_; }
  // All mappings, including the former ones.
  std::vector<Mapping> All() const;
  // How often there was no room for a mapping.
  uint64_t refused() const { return refused_; }

 private:
  void IdentifyFormer(const Mapping& file, absl::string_view build_id);
  // Keeps the part of `old` that `mapping` replaces, if it is of another file.
  void KeepFormer(const Mapping& old, const Mapping& mapping, const WhenMapped& when);
  // Notes that `former` is not kept. Stacks taken from `since` on can contain its code.
  void Forget(const FormerMapping& former, uint64_t since);

  std::vector<std::shared_ptr<const Mapping>> mappings_;
  size_t path_bytes_ = 0;  // sum over all paths
  uint64_t refused_ = 0;
  std::vector<FormerMapping> former_;  // by `until`; those at one place share the mapping
  uint64_t next_former_ = kFormerBegin;
  std::vector<ForgottenRange> forgotten_;
};

// The mappings of `latest` that name no code wrongly in a profile whose addresses were placed by `placed`. Mappings
// that other code has replaced in between are left out, and so are their replacements. REQUIRES: both are as All()
// gives them. Thread-safe.
std::vector<Mapping> InAgreement(const std::vector<Mapping>& placed, std::vector<Mapping> latest);

// The executable mappings of a text in the form of /proc/PID/maps, in its order. InvalidArgument: a line has another
// form. Thread-safe.
absl::StatusOr<std::vector<Mapping>> ParseMaps(absl::string_view text);

// The build-id that hexadecimal digits stand for; nullopt for any other text, or one that is too long. Thread-safe.
std::optional<std::string> BuildIdOfHex(absl::string_view digits);

}  // namespace heaptap::elf

#endif  // HEAPTAP_USERSPACE_ELF_MAPPINGS_H_
