// SPDX-License-Identifier: Apache-2.0
//
// Finds sampled allocators by their ELF notes, never by a file's name, and attaches to them.
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

// What a file has for us.
struct Allocator {
  std::vector<elf::ProbeSite> sites;  // of the providers otel_memory and heaptap
  bool HasSamples() const;            // has otel_memory:alloc and otel_memory:free
};

// Reads the notes of an open file. An empty Allocator: none. InvalidArgument: notes that cannot be used, and why.
absl::StatusOr<Allocator> ReadAllocator(int fd);

class ProbeFiles {
 public:
  static constexpr pid_t kEveryProcess = -1;
  // An attached file, whatever it is called and wherever it is mounted: bpf::UnwindMaps::FindInode.
  using File = uint64_t;

  // `books` must outlive this. With `pins`, which must too, the probes stay when this ends, and those that are there
  // already are taken over.
  explicit ProbeFiles(const bpf::Books& books, const bpf::Pins* pins = nullptr);
  ~ProbeFiles();
  ProbeFiles(const ProbeFiles&) = delete;
  ProbeFiles& operator=(const ProbeFiles&) = delete;

  // Attaches to the allocator in the file open at `fd`, reachable for the kernel as `path` during this call; `name` is
  // for messages; `pid` is the one process to attach to, or kEveryProcess. A file is attached once, also if several
  // overlay file systems show it; later calls answer from memory. Returns whether it is a sampled allocator. NotFound:
  // the process is gone.
  absl::StatusOr<bool> Attach(int fd, const std::string& path, absl::string_view name, pid_t pid);

  // Whether the file open at `fd` is one that is attached to.
  bool IsAttached(int fd) const { return Find(fd).has_value(); }
  std::optional<File> Find(int fd) const;

  // All that are attached to.
  std::set<File> files() const;

  // Takes the probes of some files away, which must be in no recorded process any more: a probe keeps its file's mount
  // busy. That takes its time (see Detach) and goes on behind; till then, IsReleasing, and no more may be released.
  void Release(const std::set<File>& files);
  bool IsReleasing() const { return is_releasing_; }

  // Takes all probes away again, pinned ones too, the last first: the end of sampling comes before the end of what
  // follows from it. Each link waits for the kernel some hundredths of a second (6.18), one after the other also from
  // several threads; without links to many sites (bpf::HasManySites) a file has six of them.
  void Detach();

 private:
  struct Attached {
    std::vector<bpf::AttachedProbe> probes = {};  // none of ours where they were taken over
    uid_t owner = 0;                              // of those that were taken over nobody knows
  };
  absl::Status CheckRoom(const Allocator& allocator, uid_t owner, absl::string_view name) const;
  // By one link, where the kernel can.
  absl::StatusOr<std::vector<bpf::AttachedProbe>> AttachAtOnce(const Allocator& allocator, const std::string& path,
                                                               pid_t pid, const std::string& pin);
  absl::StatusOr<std::vector<bpf::AttachedProbe>> AttachSites(const Allocator& allocator, const std::string& path,
                                                              pid_t pid, const std::string& pin);
  void TakeOver();

  const bpf::Books& books_;
  const bpf::Pins* pins_;
  // Files that are no allocators, and when they were changed last: a number that is used again is another file.
  std::map<std::pair<dev_t, ino_t>, timespec> others_;
  std::map<File, Attached> attached_;
  std::thread releasing_;
  std::atomic<bool> is_releasing_ = false;
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_PROBE_FILES_H_
