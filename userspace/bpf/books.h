// SPDX-License-Identifier: Apache-2.0
//
// The kernel's books: loads the eBPF programs and maps, follows the life of processes, reads the books out.
//
// The maps' contract is bpf/books.h. Not thread safe; one thread owns a Books. All map contents that a process
// can influence (addresses, sizes, weights, names) are unverified.
#ifndef HEAPTAP_USERSPACE_BPF_BOOKS_H_
#define HEAPTAP_USERSPACE_BPF_BOOKS_H_

#include <errno.h>
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "bpf/books.h"
#include "bpf/commands.h"
#include "bpf/events.h"
#include "bpf/unwind.h"
#include "userspace/bpf/pins.h"
#include "userspace/bpf/unwind_maps.h"
#include "userspace/elf/file_descriptor.h"

struct bpf_map;
struct heaptap_bpf;
struct ring_buffer;

namespace heaptap::bpf {

// Upper bounds of the maps: entries, and bytes of the ring buffers (a power of two of at least a page) and of all
// unwind tables.
struct MapSizes {
  uint32_t processes = HEAPTAP_DEFAULT_PROCESSES;
  uint32_t stacks = HEAPTAP_DEFAULT_STACKS;
  uint32_t live = HEAPTAP_DEFAULT_LIVE;
  uint32_t tallies = HEAPTAP_DEFAULT_TALLIES;
  uint32_t losses = HEAPTAP_DEFAULT_LOSSES;
  uint32_t events_bytes = HEAPTAP_DEFAULT_EVENTS_BYTES;
  uint32_t files = HEAPTAP_DEFAULT_FILES;
  uint32_t names = HEAPTAP_DEFAULT_NAMES;
  uint32_t records = HEAPTAP_DEFAULT_RECORDS;
  uint32_t raw_stacks_bytes = HEAPTAP_DEFAULT_RAW_STACKS_BYTES;
  uint64_t unwind_bytes = HEAPTAP_DEFAULT_UNWIND_BYTES;
};

// When the kernel shall send events about a process, in estimated bytes; 0 is never.
struct Triggers {
  uint64_t first_high_water = 0;
  uint32_t high_water_percent = 0;  // from one mark to the next
  uint64_t interval = 0;
};

heaptap_triggers ToKernel(const Triggers& triggers);

// The programs that are not attached when the books are loaded.
enum class Program {
  kAlloc,
  kFree,
  kStart,
  kTakeControl,
  kDump,
  kThreadName,
  kInvalidateRules,
  kIdentify,
  kSweep,
  kConfigure,
  kFold,
  kTalliesDeleted,
  kAny,  // calls one of the first six by the cookie of a site (enum heaptap_probe); attached to many sites at once
};
inline constexpr size_t kPrograms = 13;

// A process that is recorded at this moment: what the programs keep of it.
struct RecordedProcess {
  pid_t tgid = 0;
  heaptap_process process = {};
};

// What one process shall have.
struct ProcessSettings {
  bool ignored = false;  // it is not recorded, from now on
  uint32_t max_live = 0;
  uint32_t max_tallies = 0;
  Triggers triggers = {};
};

struct TallyEntry {
  uint64_t stack_id;
  uint32_t tid;
  heaptap_tally tally;
};

struct ThreadName {
  std::string name;
  bool given = false;  // by the program; else it is the comm that the thread ended with
};

struct LiveTotals {
  uint64_t objects = 0;
  uint64_t bytes = 0;
  uint64_t weight = 0;
};

using Losses = std::array<heaptap_loss, HEAPTAP_LOSS_REASONS>;

// "live map full" and the like.
absl::string_view LossDescription(uint32_t reason);
// "live_full" and the like: stable names for machines.
absl::string_view LossName(uint32_t reason);

// At what a stack ends (enum heaptap_stack_end).
absl::string_view StackEndDescription(uint32_t end);

class Books {
 public:
  // Loads everything and begins to follow exec, fork and exit of tracked processes. PermissionDenied names the missing
  // capabilities; FailedPrecondition names what the kernel lacks.
  static absl::StatusOr<std::unique_ptr<Books>> Load(const MapSizes& sizes);
  // The same, and pins it all; or takes over what a collector of this layout has left there, with the sizes that it
  // has. `pins` must outlive the books.
  static absl::StatusOr<std::unique_ptr<Books>> LoadOrAdopt(const MapSizes& sizes, const Pins& pins);
  ~Books();

  // What tells these programs and maps from those of other builds.
  static std::string Layout();
  // Whether they are another collector's, taken over.
  bool adopted() const { return adopted_; }
  bool HasSizes(const MapSizes& sizes) const;

  // Many CPUs can fill the ring buffer as fast as it is read, without end; what is over waits for the next time.
  static constexpr size_t kMaxEventsAtOnce = 1 << 16;
  static constexpr int kEnough = -EAGAIN;

  Books(const Books&) = delete;
  Books& operator=(const Books&) = delete;

  // Opens books for the process `tgid`; with `follow`, for its future children too. Returns the process id. Where
  // processes that nobody tracked have figures (SetSettings), it has some, too.
  absl::StatusOr<uint64_t> Track(pid_t tgid, bool follow, const Triggers& triggers);
  // Whether `tgid` is at this moment the PID of the process with this id.
  bool IsCurrent(pid_t tgid, uint64_t process_id) const;
  // The process is no longer recorded; its books stay until Forget.
  void Untrack(pid_t tgid);

  // What happens to processes that nobody tracked; all zeros: nothing. The rooms are for this to fill in.
  absl::Status SetSettings(heaptap_settings settings);
  // Changes shares and triggers of a recorded process. False: it has ended, or has other books by now.
  bool Configure(pid_t tgid, uint64_t process_id, const ProcessSettings& settings);
  // NotFound: no such process is recorded.
  absl::StatusOr<heaptap_process> ReadProcess(pid_t tgid) const;

  // Becomes readable when there are events.
  int events_fd() const;
  // Takes all events there are, in the order in which they were sent. To be called from time to time in any case.
  absl::StatusOr<std::vector<heaptap_event>> TakeEvents();

  // How many events the ring buffer had no room for, since Load.
  uint64_t EventsLost() const;
  // The recorded processes at this moment, by process id; without those that share their parent's books.
  absl::StatusOr<std::map<uint64_t, RecordedProcess>> ReadProcesses() const;
  // Those that have ended and are not forgotten, whether or not an event has said so.
  struct Unnoticed {
    pid_t tgid;
    bool by_exec;
    uint32_t status;  // as wait(2) has it
    bool by_oom_kill;
    uint64_t peak_weight;
  };
  absl::StatusOr<std::map<uint64_t, Unnoticed>> ReadUnnoticed() const;
  // One look-up.
  bool IsUnnoticed(uint64_t process_id) const;

  // Each of these reads a whole map once.
  absl::StatusOr<std::vector<TallyEntry>> ReadTallies(uint64_t process_id) const;
  // Of all processes, by process id.
  absl::StatusOr<std::map<uint64_t, std::vector<TallyEntry>>> ReadAllTallies() const;
  // By process id; a process without live objects may be left out.
  absl::StatusOr<std::map<uint64_t, LiveTotals>> ReadLiveTotals() const;
  // One look-up. NotFound for HEAPTAP_NO_STACK.
  absl::StatusOr<heaptap_stack> ReadStack(uint64_t stack_id) const;
  // One look-up. NotFound: the thread was given no name and has not ended, or that was long ago.
  absl::StatusOr<ThreadName> ReadThreadName(uint64_t process_id, uint32_t tid) const;
  // Reads all records once; those of the process, oldest first. Records that are being written may be left out or
  // mixed.
  absl::StatusOr<std::vector<heaptap_record>> ReadRecords(uint64_t process_id) const;
  // One look-up a reason. Process id 0: losses that no process could be blamed for.
  Losses ReadLosses(uint64_t process_id) const;

  // Adds a tally of a thread that has ended to thread 0's, if nothing of it lives. `tgid`: of the process.
  // `threads_begun`: of heaptap_process, read before the caller saw that the thread has ended; if another one has begun
  // since, which may have the same TID, nothing is done.
  bool Fold(pid_t tgid, uint64_t process_id, const TallyEntry& entry, uint32_t threads_begun);

  // How full the ring buffer was when events were taken last, 0 to 1 (a little more, if some came meanwhile).
  double EventsFill() const { return events_fill_; }
  // Bytes of kernel memory in the maps, as far as the kernel says so, in total and by map.
  std::map<std::string, uint64_t> KernelMemory() const;

  // Makes room in the map of live objects: deletes what was freed and what belongs to forgotten processes. To be called
  // at HEAPTAP_EVENT_LIVE_FILLING.
  absl::Status Sweep();

  // Removes all that is kept under these process ids, their live objects with the next sweep. The processes must be
  // gone or untracked, or have other books by now. Reads the map of tallies once, however many they are.
  absl::Status Forget(const std::set<uint64_t>& process_ids);
  // Says, for whoever takes over, that all is done for the process but to forget it.
  void MarkClosed(uint64_t process_id);
  // Process ids that were marked or forgotten, and may still have something in the maps.
  absl::StatusOr<std::set<uint64_t>> ReadClosed() const;

  // Unwind tables, and the stacks that wait for them.
  UnwindMaps& unwind() { return unwind_; }
  const UnwindMaps& unwind() const { return unwind_; }

  // Descriptor of a program; -1: it could not be loaded (kTakeControl, where programs must not write; kAny, where the
  // kernel has no links to many sites). If kAny is there, it is the only one that can be attached to probe sites.
  int program(Program which) const { return programs_[static_cast<size_t>(which)].get(); }

 private:
  Books() = default;
  absl::Status Open(const MapSizes& sizes, const Pins* pins);
  std::vector<std::pair<bpf_map*, uint32_t>> SizedMaps(const MapSizes& sizes) const;
  void SetSizes(const MapSizes& sizes);
  absl::Status LoadObject(bool for_everyone);
  absl::Status Prepare(const MapSizes& sizes);
  absl::Status FillPrograms();
  absl::Status AttachLifecycle();
  absl::Status PinAll(const Pins& pins);
  absl::Status Adopt(const Pins& pins);
  absl::Status UseMaps();
  void SetCounter(uint32_t which, uint64_t value);
  uint64_t ReadCounter(uint32_t which) const;

  heaptap_bpf* object_ = nullptr;
  std::array<elf::FileDescriptor, kPrograms> programs_;
  ring_buffer* ring_ = nullptr;
  UnwindMaps unwind_;
  bool adopted_ = false;
  std::vector<heaptap_event> events_;
  double events_fill_ = 0;
  std::vector<uint64_t> forgotten_;
  uint64_t sweep_at_ = 0;         // entries
  uint64_t sweep_again_at_ = 0;   // time before which `live` is not swept for less than its filling; 0: it may be
  uint64_t next_process_id_ = 1;  // odd ones are ours, even ones the programs'
  uint32_t flags_of_all_ = 0;     // heaptap_settings.flags
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_BOOKS_H_
