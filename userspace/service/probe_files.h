// SPDX-License-Identifier: Apache-2.0
//
// Finds sampled allocators by their ELF notes, never by the name of a file, and attaches to them.
//
// Not thread safe.
#ifndef HEAPTAP_USERSPACE_SERVICE_PROBE_FILES_H_
#define HEAPTAP_USERSPACE_SERVICE_PROBE_FILES_H_

#include <sys/types.h>
#include <time.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/bpf/books.h"
#include "userspace/bpf/pins.h"
#include "userspace/bpf/probes.h"
#include "userspace/elf/probes.h"

namespace heaptap::service {

// The probe sites of a file.
struct Allocator {
  std::vector<elf::ProbeSite> sites;  // of the providers otel_memory and heaptap
  bool HasSamples() const;            // whether otel_memory:alloc and otel_memory:free are among them
};

// Reads the notes of an open file. An empty Allocator: the file has none. InvalidArgument: unusable notes.
absl::StatusOr<Allocator> ReadAllocator(int fd);

class ProbeFiles {
 public:
  static constexpr pid_t kEveryProcess = -1;
  // Identifies an attached file, independently of names and mounts (bpf::UnwindMaps::FindInode).
  using File = uint64_t;

  // `books` and `pins` must outlive this object. With `pins`, the probes survive this object, and existing ones are
  // taken over.
  explicit ProbeFiles(const bpf::Books& books, const bpf::Pins* pins = nullptr);
  ~ProbeFiles();
  ProbeFiles(const ProbeFiles&) = delete;
  ProbeFiles& operator=(const ProbeFiles&) = delete;

  // Attaches to the allocator in the open file `fd`, which the kernel can open as `path` during this call. `name` is
  // for messages; `pid` is the only process to attach to, or kEveryProcess. A file is attached once, even if several
  // overlay file systems show it; later calls use the earlier result. Returns whether it is a sampled allocator.
  // NotFound: the process is gone.
  absl::StatusOr<bool> Attach(int fd, const std::string& path, absl::string_view name, pid_t pid);

  // Whether the open file `fd` is attached.
  bool IsAttached(int fd) const { return Find(fd).has_value(); }
  std::optional<File> Find(int fd) const;

  // All attached files.
  std::set<File> files() const;

  // Removes the probes of files that no recorded process maps any more: a probe keeps its file's mount busy. This is
  // slow (see Detach) and runs in the background; while IsReleasing, further calls do nothing.
  void Release(const std::set<File>& files);
  bool IsReleasing() const { return is_releasing_; }

  // Removes all probes, pinned ones too, in reverse order: sampling ends before the probes that depend on it. Each link
  // takes some hundredths of a second in the kernel (6.18), and threads do not help. Without links to many sites
  // (bpf::HasManySites) a file has six links.
  void Detach();

 private:
  struct Attached {
    std::vector<bpf::AttachedProbe> probes = {};  // empty if taken over: then only the pins hold the links
    uid_t owner = 0;                              // of the file; 0 if taken over, since it is unknown
  };
  absl::Status CheckRoom(const Allocator& allocator, uid_t owner, absl::string_view name) const;
  // With one link; needs Linux 6.6.
  absl::StatusOr<std::vector<bpf::AttachedProbe>> AttachAtOnce(const Allocator& allocator, const std::string& path,
                                                               pid_t pid, const std::string& pin);
  absl::StatusOr<std::vector<bpf::AttachedProbe>> AttachSites(const Allocator& allocator, const std::string& path,
                                                              pid_t pid, const std::string& pin);
  void TakeOver();

  const bpf::Books& books_;
  const bpf::Pins* pins_;
  // Files without a sampled allocator, and the times of their last change: an inode number can be reused.
  std::map<std::pair<dev_t, ino_t>, timespec> without_allocator_;
  std::map<File, Attached> attached_;
  std::thread releasing_;
  std::atomic<bool> is_releasing_ = false;
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_PROBE_FILES_H_
