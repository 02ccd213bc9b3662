// SPDX-License-Identifier: Apache-2.0
//
// Attaches to the sampled allocators in files, which it finds by their ELF notes, never by the name of a file.
//
// Not thread safe.
#ifndef HEAPTAP_USERSPACE_ATTACH_PROBE_FILES_H_
#define HEAPTAP_USERSPACE_ATTACH_PROBE_FILES_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/attach/allocator_files.h"
#include "userspace/attach/told_rates.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/subordinate_ids.h"
#include "userspace/base/thread_checker.h"
#include "userspace/bpf/books.h"
#include "userspace/bpf/pins.h"
#include "userspace/crews/errands.h"
#include "userspace/process/allocator_probes.h"
#include "userspace/spaces/seen_file.h"

namespace heaptap::recording {

class ProbeFiles {
 public:
  static constexpr pid_t kEveryProcess = -1;
  // Identifies an attached file, independently of names and mounts (worker::MappedFile::inode_address).
  using File = uint64_t;

  // `books`, `errands` and `pins` must outlive this object. With `pins`, the probes survive this object, and existing
  // ones are taken over. `ids`: the files of a user's subordinate ids are the user's.
  ProbeFiles(const bpf::Books& books, worker::Errands& errands, const bpf::Pins* pins = nullptr,
             base::SubordinateIds ids = {});
  ~ProbeFiles();
  ProbeFiles(const ProbeFiles&) = delete;
  ProbeFiles& operator=(const ProbeFiles&) = delete;

  // Has a worker attach to the allocator in a file; `pid` is the only process to attach to, or kEveryProcess. A file is
  // attached once, even if several overlay file systems show it. `done` is called once, perhaps during this call, but
  // not after the end of this object; its status names the file. NotFound: the process is gone, or Detach was called
  // meanwhile.
  using Done = std::function<void(const absl::Status&)>;
  void Attach(const SeenFile& file, const process::AllocatorProbes& allocator, pid_t pid, Done done);

  bool IsAttached(File file) const { return attached_.contains(file); }
  // Whether the file is attached, and its processes are told the rate that TellRate has set.
  bool IsWhole(File file) const { return IsAttached(file) && rates_.IsTold(file); }

  // Sets what files that are attached for every process tell their processes (told_rates.h). Files that tell something
  // else tell nothing until they are attached again, which is quick.
  void TellRate(std::optional<uint32_t> lg_sample);

  // A user whose files the kernel refuses too often gets no further ones attached until this is called.
  void ForgetFailures() { failures_.clear(); }

  // All attached files.
  std::set<File> files() const;

  // Removes the probes of files that no recorded process maps any more: a probe keeps its file's mount busy. This is
  // slow (see Detach) and runs in the background; while IsReleasing, further calls do nothing.
  void Release(const std::set<File>& files);
  bool IsReleasing() const { return is_releasing_; }

  // Removes all probes, pinned ones too, in reverse order: sampling ends before the probes that depend on it. Each link
  // takes some hundredths of a second in the kernel (6.18), and threads do not help. Without links to many sites
  // (bpf::HasManySites) a file has seven links.
  void Detach();

 private:
  struct Attached {
    std::vector<base::FileDescriptor> links = {};  // empty if taken over: then only the pins hold the links
    uid_t owner = 0;                               // of the file; 0 if taken over, since it is unknown
  };
  struct Wanted {
    SeenFile file;
    process::AllocatorProbes allocator;
    pid_t pid;
    Done done;
  };
  struct Attaching {
    uid_t owner = 0;
    worker::FileVersion version = {};
    // The user who pays for the errand under way, and its job. The first errand tells the rate, the second one
    // attaches.
    uid_t payer = 0;
    worker::Errands::JobId job = worker::Errands::kNoJob;
    Done done = {};
    // Calls that want the same meanwhile. Their process may be another one, and so may their file: the kernel may have
    // given a new file the address of one that is gone.
    std::vector<Wanted> others = {};
  };
  void StartAttaching(const SeenFile& file, const process::AllocatorProbes& allocator, pid_t pid);
  // Closes links in the background. Waits for an earlier call.
  void CloseInBackground(std::vector<base::FileDescriptor> links);
  absl::Status CheckRoom(const process::AllocatorProbes& allocator, uid_t owner) const;
  // The order for the worker, without the file.
  worker::Request MakeRequest(const process::AllocatorProbes& allocator, worker::AttachOrder order) const;
  void HandleAttached(File file, const std::string& name, worker::Answer answer);
  absl::Status Pin(File file, const std::vector<base::FileDescriptor>& links) const;
  void TakeOver();

  const bpf::Books& books_;
  worker::Errands& errands_;
  const bpf::Pins* pins_;
  const base::SubordinateIds ids_;
  ToldRates rates_;
  std::map<File, Attached> attached_;
  std::map<File, Attaching> attaching_;
  std::map<uid_t, size_t> failures_;  // files of a user whose probes the kernel refused, since ForgetFailures
  std::thread releasing_;
  std::atomic<bool> is_releasing_ = false;
  base::ThreadChecker thread_;
};

// Attaches to the allocator in a file, and waits for that. Returns whether it is a sampled allocator. Unavailable: it
// takes too long.
absl::StatusOr<bool> AttachAllocator(const SeenFile& file, worker::Errands& errands, AllocatorFiles& allocator_files,
                                     ProbeFiles& probe_files, pid_t pid);

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_ATTACH_PROBE_FILES_H_
