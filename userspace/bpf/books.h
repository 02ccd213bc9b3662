// SPDX-License-Identifier: Apache-2.0
//
// The kernel's books: loads the eBPF programs and maps, follows the life of processes, reads the books.
//
// bpf/books.h describes the maps. Not thread-safe. Map contents that a process can influence (addresses, sizes,
// weights, names) are unverified.
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

// Upper bounds of the maps: entries; bytes of the ring buffers (a power of two, at least a page) and of all unwind
// tables.
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

// When the kernel sends events about a process, in estimated bytes; 0: never.
struct Triggers {
  uint64_t first_high_water = 0;
  uint32_t high_water_percent = 0;  // from one mark to the next
  uint64_t interval = 0;
};

heaptap_triggers ToKernel(const Triggers& triggers);

// The programs that Load leaves to the caller to attach or to run.
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

// A process that is recorded now, as the programs keep it.
struct RecordedProcess {
  pid_t tgid = 0;
  heaptap_process process = {};
};

// What Configure sets for a process.
struct ProcessSettings {
  bool ignored = false;  // stop recording it
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
  bool given = false;  // by the program; else it is the comm of the thread when it ended
};

struct LiveTotals {
  uint64_t objects = 0;
  uint64_t bytes = 0;
  uint64_t weight = 0;
};

using Losses = std::array<heaptap_loss, HEAPTAP_LOSS_REASONS>;

// A sentence for people, such as "samples not recorded: map of live objects full".
absl::string_view LossDescription(uint32_t reason);
// A stable name for machines, such as "live_full".
absl::string_view LossName(uint32_t reason);

// What a stack ends at (enum heaptap_stack_end), for people.
absl::string_view StackEndDescription(uint32_t end);

class Books {
 public:
  // Loads programs and maps, and begins to follow fork, exec and exit of tracked processes. PermissionDenied names the
  // missing capabilities, FailedPrecondition what the kernel lacks.
  static absl::StatusOr<std::unique_ptr<Books>> Load(const MapSizes& sizes);
  // The same, and pins everything. If an earlier collector of this layout left its recording there, takes that over,
  // with the sizes it has. `pins` must outlive the books.
  static absl::StatusOr<std::unique_ptr<Books>> LoadOrAdopt(const MapSizes& sizes, const Pins& pins);
  ~Books();

  // Identifies the programs and maps of this build.
  static std::string Layout();
  // Whether the recording of an earlier collector was taken over.
  bool adopted() const { return adopted_; }
  bool HasSizes(const MapSizes& sizes) const;

  // Many CPUs can fill the ring buffer as fast as it is read. Events beyond this number wait for the next TakeEvents.
  static constexpr size_t kMaxEventsAtOnce = 1 << 16;
  static constexpr int kEnough = -EAGAIN;

  Books(const Books&) = delete;
  Books& operator=(const Books&) = delete;

  // Opens books for the process `tgid`, and with `follow` for its future children. Returns the process id. The programs
  // keep figures of the process if it has triggers, or if SetSettings wants figures.
  absl::StatusOr<uint64_t> Track(pid_t tgid, bool follow, const Triggers& triggers);
  // Whether `tgid` is now the PID of the process with this id.
  bool IsCurrent(pid_t tgid, uint64_t process_id) const;
  // Stops recording the process; its books stay until Forget.
  void Untrack(pid_t tgid);

  // What happens to processes that were not tracked; all zeros: nothing. Fills in live_room and tallies_room.
  absl::Status SetSettings(heaptap_settings settings);
  // Changes limits and triggers of a recorded process. False: it has ended, or has other books by now.
  bool Configure(pid_t tgid, uint64_t process_id, const ProcessSettings& settings);
  // NotFound: the process is not recorded.
  absl::StatusOr<heaptap_process> ReadProcess(pid_t tgid) const;

  // Becomes readable when there are events.
  int events_fd() const;
  // Takes events in the order in which they were sent. To be called regularly, because it also sweeps when that is due.
  absl::StatusOr<std::vector<heaptap_event>> TakeEvents();

  // Number of events since Load for which the ring buffer had no room.
  uint64_t EventsLost() const;
  // The processes that are recorded now, by process id, without those that share the books of their parent.
  absl::StatusOr<std::map<uint64_t, RecordedProcess>> ReadProcesses() const;
  // The processes that have ended and are not forgotten, whether or not their events arrived.
  struct Unnoticed {
    pid_t tgid;
    bool by_exec;
    uint32_t status;  // as in wait(2)
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
  // By process id. A process without live objects may be missing.
  absl::StatusOr<std::map<uint64_t, LiveTotals>> ReadLiveTotals() const;
  // One look-up. NotFound for HEAPTAP_NO_STACK.
  absl::StatusOr<heaptap_stack> ReadStack(uint64_t stack_id) const;
  // One look-up. NotFound: the program did not name the thread and the thread still runs, or the name was dropped.
  absl::StatusOr<ThreadName> ReadThreadName(uint64_t process_id, uint32_t tid) const;
  // The records of the process, oldest first; reads the whole map once. A record that is being written may be missing
  // or mixed with the next one.
  absl::StatusOr<std::vector<heaptap_record>> ReadRecords(uint64_t process_id) const;
  // One look-up for each reason. Process id 0: losses of no known process.
  Losses ReadLosses(uint64_t process_id) const;

  // Adds the tally of a thread that has ended to that of thread 0, if none of its samples lives. `threads_begun`: of
  // heaptap_process, read before the caller saw that the thread had ended. Returns false and does nothing if a thread
  // began since then, because it may have the same TID.
  bool Fold(pid_t tgid, uint64_t process_id, const TallyEntry& entry, uint32_t threads_begun);

  // How full the ring buffer was at the latest TakeEvents, 0 to 1, or a little more if events arrived meanwhile.
  double EventsFill() const { return events_fill_; }
  // Bytes of kernel memory by map, as far as the kernel tells.
  std::map<std::string, uint64_t> KernelMemory() const;

  // Makes room in the map of live objects: deletes entries without an object and those of forgotten processes. To be
  // called at HEAPTAP_EVENT_LIVE_FILLING.
  absl::Status Sweep();

  // Deletes the books of these process ids; their live objects go with the next sweep. The processes must have ended,
  // be untracked, or have other books by now. Reads the map of tallies once for all of them.
  absl::Status Forget(const std::set<uint64_t>& process_ids);
  // Tells a later collector that only Forget is left to be done for the process.
  void MarkClosed(uint64_t process_id);
  // Process ids that were marked or forgotten, and may still have entries in the maps.
  absl::StatusOr<std::set<uint64_t>> ReadClosed() const;

  // Unwind tables, and the stacks that wait for tables.
  UnwindMaps& unwind() { return unwind_; }
  const UnwindMaps& unwind() const { return unwind_; }

  // Descriptor of a program; -1: not loaded (kTakeControl, where programs must not write user memory; kAny, where the
  // kernel has no links to many sites). If kAny is loaded, only kAny can be attached to probe sites.
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
  uint64_t sweep_at_ = 0;         // entries of `live` at which the programs ask for a sweep
  uint64_t sweep_again_at_ = 0;   // until this time, only a filling `live` is swept; 0: no such time
  uint64_t next_process_id_ = 1;  // odd ones are ours, even ones the programs'
  uint32_t flags_of_all_ = 0;     // heaptap_settings.flags
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_BOOKS_H_
