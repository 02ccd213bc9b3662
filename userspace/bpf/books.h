// SPDX-License-Identifier: Apache-2.0
//
// The books of the recorded processes: their events, and how books begin and end. The books have three parts:
// Processes, Entries and UnwindMaps.
//
// An interface: KernelBooks implements it with the kernel's books, and tests of a recording have books in memory. Not
// thread-safe, with these exceptions: one thread at a time may call Sweep and Forget while another one uses the rest,
// and Entries and Processes::IsCurrent are thread-safe.
#ifndef HEAPTAP_USERSPACE_BPF_BOOKS_H_
#define HEAPTAP_USERSPACE_BPF_BOOKS_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bpf/books.h"
#include "bpf/events.h"
#include "userspace/bpf/areas.h"
#include "userspace/bpf/entries.h"
#include "userspace/bpf/processes.h"
#include "userspace/bpf/unwind_maps.h"

namespace heaptap::bpf {

// Memory of the maps, in bytes.
struct KernelMemory {
  std::optional<uint64_t> held = {};  // now; nothing on Linux before 6.4, which does not report it
  uint64_t most = 0;                  // keys and values of full maps, as Linux before 6.4 counts them
};

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

// The programs that the books leave to the caller to attach or to run.
enum class Program {
  kFree,
  kSample,
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
  kTakeFrees,
  kUntrack,
  kGiveArea,
  kAny,  // calls one of the first six, by the cookie of a site (enum heaptap_probe); attached to many sites at once
};
inline constexpr size_t kPrograms = 16;

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

  virtual const Entries& entries() const = 0;
  virtual Processes& processes() = 0;
  virtual const Processes& processes() const = 0;
  // Unwind tables, and the stacks that wait for tables.
  virtual UnwindMaps& unwind() = 0;
  virtual const UnwindMaps& unwind() const = 0;
  // Null: processes report all samples.
  virtual Areas* areas() { return nullptr; }

  // Becomes readable when there are events.
  virtual int events_fd() const = 0;
  // Takes events in the order in which they were sent.
  virtual absl::StatusOr<std::vector<heaptap_event>> TakeEvents() = 0;
  // Number of events for which the ring buffer had no room, since the books began.
  virtual uint64_t EventsLost() const = 0;
  // How full the ring buffer was at the latest TakeEvents, 0 to 1, or a little more if events arrived meanwhile.
  virtual double EventsFill() const = 0;

  // Adds the tally of a thread that has ended to the tally of thread 0, if none of its samples lives. `threads_begun`:
  // the field of heaptap_process, read before the caller saw that the thread had ended. Returns false and does nothing
  // if a thread began since then, because it may have the same TID, or if the kernel has no memory to run the program;
  // then the tally is there for a later call. REQUIRES: the caller holds entries().folding() for writing.
  virtual bool Fold(pid_t tgid, uint64_t process_id, const TallyEntry& entry, uint32_t threads_begun) = 0;
  // Makes room in the map of live objects: deletes entries without an object and those of forgotten processes. To be
  // called at HEAPTAP_EVENT_LIVE_FILLING and when IsSweepDue. Takes tens of milliseconds: visits the whole map.
  virtual absl::Status Sweep() = 0;
  // Whether there is enough to sweep, and the last sweep was long enough ago. To be called regularly.
  virtual bool IsSweepDue() = 0;

  // Deletes the books of these process ids; their live objects go with the next sweep. The processes must have ended,
  // be untracked, or have other books by now. Reads the map of tallies once for all of them, and takes about half a
  // second for 100,000 tallies.
  virtual absl::Status Forget(const std::set<uint64_t>& process_ids) = 0;
  // Tells a later collector that only Forget is left to be done for the process.
  virtual void MarkClosed(uint64_t process_id) = 0;
  // Process ids that were marked or forgotten, and may still have entries in the maps.
  virtual absl::StatusOr<std::set<uint64_t>> ReadClosed() const = 0;

  virtual KernelMemory Memory() const = 0;

  // Descriptor of a program; -1: not loaded (kTakeControl, where programs must not write user memory; kAny, where the
  // kernel has no links to many sites). If kAny is loaded, only kAny can be attached to probe sites.
  virtual int program(Program which) const = 0;

 protected:
  Books() = default;
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_BOOKS_H_
