// SPDX-License-Identifier: Apache-2.0
//
// The books of the recorded processes: stacks, tallies, live objects, losses and events.
//
// An interface: KernelBooks has the kernel's books behind it, and tests of a recording have books in memory.
// bpf/books.h describes the entries. Not thread-safe, except IsCurrent. Contents that a process can influence
// (addresses, sizes, weights, names) are unverified.
#ifndef HEAPTAP_USERSPACE_BPF_BOOKS_H_
#define HEAPTAP_USERSPACE_BPF_BOOKS_H_

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bpf/books.h"
#include "bpf/events.h"
#include "userspace/bpf/unwind_maps.h"

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

// The programs that the books leave to the caller to attach or to run.
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
  virtual ~Books() = default;
  Books(const Books&) = delete;
  Books& operator=(const Books&) = delete;

  // Names the form of the books. A later collector can take over books of the same layout only.
  virtual std::string layout() const = 0;
  // Whether the recording of an earlier collector was taken over.
  virtual bool adopted() const = 0;
  virtual bool HasSizes(const MapSizes& sizes) const = 0;

  // Opens books for the process `tgid`, and with `follow` for its future children. Returns the process id. The programs
  // keep figures of the process if it has triggers, or if SetSettings wants figures.
  virtual absl::StatusOr<uint64_t> Track(pid_t tgid, bool follow, const Triggers& triggers) = 0;
  // Whether `tgid` is now the PID of the process with this id.
  virtual bool IsCurrent(pid_t tgid, uint64_t process_id) const = 0;
  // Stops recording the process; its books stay until Forget.
  virtual void Untrack(pid_t tgid) = 0;

  // What happens to processes that were not tracked; all zeros: nothing. Fills in live_room and tallies_room.
  virtual absl::Status SetSettings(heaptap_settings settings) = 0;
  // Changes limits and triggers of a recorded process. False: it has ended, or has other books by now.
  virtual bool Configure(pid_t tgid, uint64_t process_id, const ProcessSettings& settings) = 0;
  // NotFound: the process is not recorded.
  virtual absl::StatusOr<heaptap_process> ReadProcess(pid_t tgid) const = 0;

  // Becomes readable when there are events.
  virtual int events_fd() const = 0;
  // Takes events in the order in which they were sent. To be called regularly, because it also sweeps when that is due.
  virtual absl::StatusOr<std::vector<heaptap_event>> TakeEvents() = 0;

  // Number of events for which the ring buffer had no room, since the books began.
  virtual uint64_t EventsLost() const = 0;
  // The processes that are recorded now, by process id, without those that share the books of their parent.
  virtual absl::StatusOr<std::map<uint64_t, RecordedProcess>> ReadProcesses() const = 0;
  // The books that have ended and are not forgotten, whether or not their events arrived.
  struct Unnoticed {
    enum class Cause { kExit, kExec, kReset };
    pid_t tgid;
    Cause cause;
    uint32_t status;  // as in wait(2)
    bool by_oom_kill;
    uint64_t peak_weight;
  };
  virtual absl::StatusOr<std::map<uint64_t, Unnoticed>> ReadUnnoticed() const = 0;
  // One look-up.
  virtual bool IsUnnoticed(uint64_t process_id) const = 0;

  // Each of these reads a whole map once.
  virtual absl::StatusOr<std::vector<TallyEntry>> ReadTallies(uint64_t process_id) const = 0;
  // Of all processes, by process id.
  virtual absl::StatusOr<std::map<uint64_t, std::vector<TallyEntry>>> ReadAllTallies() const = 0;
  // By process id. A process without live objects may be missing.
  virtual absl::StatusOr<std::map<uint64_t, LiveTotals>> ReadLiveTotals() const = 0;
  // One look-up. NotFound for HEAPTAP_NO_STACK.
  virtual absl::StatusOr<heaptap_stack> ReadStack(uint64_t stack_id) const = 0;
  // One look-up. NotFound: the program did not name the thread and the thread still runs, or the name was dropped.
  virtual absl::StatusOr<ThreadName> ReadThreadName(uint64_t process_id, uint32_t tid) const = 0;
  // The records of the process, oldest first; reads the whole map once. A record that is being written may be missing
  // or mixed with the next one.
  virtual absl::StatusOr<std::vector<heaptap_record>> ReadRecords(uint64_t process_id) const = 0;
  // One look-up for each reason. Process id 0: losses of no known process.
  virtual Losses ReadLosses(uint64_t process_id) const = 0;

  // Adds the tally of a thread that has ended to that of thread 0, if none of its samples lives. `threads_begun`: of
  // heaptap_process, read before the caller saw that the thread had ended. Returns false and does nothing if a thread
  // began since then, because it may have the same TID.
  virtual bool Fold(pid_t tgid, uint64_t process_id, const TallyEntry& entry, uint32_t threads_begun) = 0;

  // How full the ring buffer was at the latest TakeEvents, 0 to 1, or a little more if events arrived meanwhile.
  virtual double EventsFill() const = 0;
  // Bytes of kernel memory by map, as far as the kernel tells.
  virtual std::map<std::string, uint64_t> KernelMemory() const = 0;

  // Makes room in the map of live objects: deletes entries without an object and those of forgotten processes. To be
  // called at HEAPTAP_EVENT_LIVE_FILLING.
  virtual absl::Status Sweep() = 0;

  // Deletes the books of these process ids; their live objects go with the next sweep. The processes must have ended,
  // be untracked, or have other books by now. Reads the map of tallies once for all of them.
  virtual absl::Status Forget(const std::set<uint64_t>& process_ids) = 0;
  // Tells a later collector that only Forget is left to be done for the process.
  virtual void MarkClosed(uint64_t process_id) = 0;
  // Process ids that were marked or forgotten, and may still have entries in the maps.
  virtual absl::StatusOr<std::set<uint64_t>> ReadClosed() const = 0;

  // Unwind tables, and the stacks that wait for tables.
  virtual UnwindMaps& unwind() = 0;
  virtual const UnwindMaps& unwind() const = 0;

  // Descriptor of a program; -1: not loaded (kTakeControl, where programs must not write user memory; kAny, where the
  // kernel has no links to many sites). If kAny is loaded, only kAny can be attached to probe sites.
  virtual int program(Program which) const = 0;

 protected:
  Books() = default;
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_BOOKS_H_
