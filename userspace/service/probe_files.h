// SPDX-License-Identifier: Apache-2.0
//
// Finds sampled allocators by their ELF notes, never by a file's name, and attaches to them.
//
// Not thread safe.
#ifndef HEAPTAP_USERSPACE_SERVICE_PROBE_FILES_H_
#define HEAPTAP_USERSPACE_SERVICE_PROBE_FILES_H_

#include <sys/types.h>
#include <time.h>

#include <cstdint>
#include <map>
#include <string>
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

  // `books` must outlive this. With `pins`, which must too, the probes stay when this ends, and those that are there
  // already are taken over.
  explicit ProbeFiles(const bpf::Books& books, const bpf::Pins* pins = nullptr);
  ~ProbeFiles();
  ProbeFiles(const ProbeFiles&) = delete;
  ProbeFiles& operator=(const ProbeFiles&) = delete;

  // Attaches to the allocator in the file open at `fd`, reachable for the kernel as `path` during this call; `name` is
  // for messages; `pid` is the one process to attach to, or kEveryProcess. A file (by inode) is attached once; later
  // calls answer from memory. Returns whether it is a sampled allocator. NotFound: the process is gone.
  absl::StatusOr<bool> Attach(int fd, const std::string& path, absl::string_view name, pid_t pid);

  // Whether the file open at `fd` is one that is attached to.
  bool IsAttached(int fd) const;

  // How many files are attached to.
  size_t size() const;

  // Takes all probes away again, pinned ones too, the last first: the end of sampling comes before the end of what
  // follows from it. Each one waits for the kernel about a tenth of a second (6.18), one after the other also from
  // several threads.
  void Detach();

 private:
  struct Seen {
    bool attached = false;
    timespec changed = {};  // when the file was looked at: an inode number that is used again is another file
  };
  absl::Status AttachSites(const Allocator& allocator, const std::string& path, pid_t pid, const std::string& pin);
  void TakeOver();

  const bpf::Books& books_;
  const bpf::Pins* pins_;
  std::map<std::pair<dev_t, ino_t>, Seen> seen_;
  std::vector<bpf::AttachedProbe> probes_;
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_PROBE_FILES_H_
