// SPDX-License-Identifier: Apache-2.0
//
// Finds the sampled allocators of processes, and has probes attached to their files. Workers read the files, so much of
// what is asked for comes later. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_ATTACH_ALLOCATORS_H_
#define HEAPTAP_USERSPACE_ATTACH_ALLOCATORS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/attach/allocator_files.h"
#include "userspace/attach/idle_files.h"
#include "userspace/attach/probe_files.h"
#include "userspace/attach/refusals.h"
#include "userspace/base/clock.h"
#include "userspace/base/subordinate_ids.h"
#include "userspace/base/thread_checker.h"
#include "userspace/bpf/books.h"
#include "userspace/bpf/mapping_events.h"
#include "userspace/bpf/pins.h"
#include "userspace/crews/errands.h"
#include "userspace/crews/looks.h"
#include "userspace/elf/mappings.h"
#include "userspace/process/allocator_probes.h"
#include "userspace/process/facts.h"
#include "userspace/spaces/address_spaces.h"
#include "userspace/spaces/seen_file.h"

namespace heaptap::recording {

// The files of a process, and the allocators in them.
struct Inspection {
  base::Instant begin = {};
  process::Facts facts = {};
  AddressSpace space = {};
  std::vector<std::pair<SeenFile, elf::Mapping>> all = {};
  struct Found {
    SeenFile file;
    process::AllocatorProbes probes;
  };
  std::vector<Found> files = {};                 // with a sampled allocator
  std::vector<uint64_t> control_addresses = {};  // of control blocks; some may be empty
  bool is_pending = false;                       // some files are being read
};

class Allocators {
 public:
  // The objects that this one uses. They must outlive it.
  struct Means {
    const bpf::Books& books;
    worker::Looks& looks;
    worker::Errands& errands;
    const AddressSpaces& spaces;
    const bpf::Pins* pins = nullptr;  // as for ProbeFiles
  };
  struct Options {
    bool is_system_wide = false;  // no call waits here, and processes map any files that they like
    bool follow = false;          // attach for every process that maps a file
    bool only_kept = false;       // attach only to the files of AttachFile
    bool looks_for_new = true;    // look at each file that a process maps, and attach to it
    base::SubordinateIds ids = {};
    // System-wide: the process is to be looked at (again): the files that Inspect had to wait for have been read, or
    // one of its files can be looked at only later.
    std::function<void(pid_t)> look_again = {};
    // The file has just got its probes. Processes that mapped it before have missed them.
    std::function<void(const elf::Mapping&)> on_attached = {};
  };
  Allocators(const Means& means, Options options);

  // Looks at a process, if its user has room for a look (Looks). Errors: NotFound: no such process. PermissionDenied.
  // Others may pass.
  bool HasRoom(pid_t pid) const { return means_.looks.HasRoom(pid); }
  using InspectDone = std::function<void(absl::StatusOr<Inspection>)>;
  void Inspect(pid_t pid, InspectDone done);
  // Like Inspect, but waits for the result.
  absl::StatusOr<Inspection> InspectNow(pid_t pid);
  // WaitFor waits until no file of this process is being read. IsWaiting: whether a file of any process is being read.
  void WaitFor(pid_t pid);
  bool IsWaiting() const { return !pending_.empty(); }
  bool HasAttached(const Inspection& inspection) const;

  // Looks at a file that any process has mapped, if it is new.
  void Look(const bpf::MappingEvent& event);
  // Attaches to a file, and keeps its probes even while no process maps it. Waits, and returns what AttachAllocator
  // does.
  absl::StatusOr<bool> AttachFile(const SeenFile& file);
  // Attaches to the files of a process. Waits for that, except in a system-wide recording, where errors are printed
  // instead.
  absl::Status AttachAll(const std::vector<Inspection::Found>& files, pid_t pid);

  // Sets the interval that processes are told before they start (ProbeFiles::TellRate). The files of AttachFile tell it
  // from now on, and this call waits for that. Other files that have probes tell it when a process maps them.
  void TellRate(std::optional<uint32_t> lg_sample);

  // Removes the probes from files that no process has mapped for some time (IdleFiles), so that their file systems can
  // be unmounted. Call it every second.
  void Release(base::Instant now);
  void Detach() { probe_files_.Detach(); }

 private:
  using FileShown = std::tuple<uint32_t, uint64_t, uint32_t>;  // device, inode, generation
  // A file that processes have mapped.
  struct Seen {
    bool is_known = false;                      // it was looked at
    std::optional<ProbeFiles::File> file = {};  // with an allocator
    std::set<uid_t> looking = {};               // users who pay for looks under way
  };
  Inspection Complete(pid_t pid, worker::LookedAt found);
  void HandleSeen(const FileShown& key, uid_t payer, pid_t pid, const elf::Mapping& mapping,
                  const absl::StatusOr<worker::MappedFile>& seen);
  void ForgetFailures(base::Instant now);
  void WaitForReader(pid_t pid, const SeenFile& file);
  // The process to attach to for probes of one process: every process, if the children are recorded too, or if probes
  // of this one would not reach it (HasMainThread).
  pid_t ProcessesToAttach(pid_t pid) const;
  bool IsWanted(const SeenFile& file) const {
    return !options_.only_kept || files_kept_.contains(file.identity.inode_address);
  }
  void AttachSeen(const SeenFile& file, const AllocatorFiles::Allocator& allocator, const FileShown& key);
  void HandleRefused(const absl::Status& status, const FileShown& key);
  void NoteAttached(const SeenFile& file);
  // Goes on with `search_`; at its end removes the probes of the files that no process maps.
  void Search();
  void HandleSearched(pid_t pid, const absl::StatusOr<worker::LookedAt>& found);
  void NoteMapped(const SeenFile& file);

  const Means means_;
  const Options options_;
  AllocatorFiles allocator_files_;
  ProbeFiles probe_files_;
  std::map<pid_t, std::set<worker::FileVersion>> pending_;  // processes, and their files that are being read
  Refusals refusals_;
  std::map<FileShown, Seen> files_seen_;
  std::set<FileShown> files_reported_;                     // with a message
  std::map<ProbeFiles::File, SeenFile> files_kept_;        // attached even while no process maps them
  std::map<ProbeFiles::File, elf::Mapping> files_mapped_;  // a mapping of each, as last seen
  const dev_t root_device_;                                // of the root file system; 0: unknown
  IdleFiles idle_;
  base::Instant files_looked_at_ = base::Instant::InfinitePast();
  base::Instant failures_forgotten_ = base::Instant::InfinitePast();
  // A search for processes that map one of some files.
  struct FileSearch {
    std::set<ProbeFiles::File> unused;  // not found so far
    std::vector<pid_t> processes;       // still to be looked at
    std::vector<pid_t> late = {};       // to be looked at again
    std::map<pid_t, int> tries = {};    // looks at those that were late
    size_t under_way = 0;
  };
  std::optional<FileSearch> search_;
  base::ThreadChecker thread_;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_ATTACH_ALLOCATORS_H_
