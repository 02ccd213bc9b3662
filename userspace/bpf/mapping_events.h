// SPDX-License-Identifier: Apache-2.0
//
// Executable mappings of every process on the machine, as they happen. So the mappings of a process are known even
// after it has ended.
//
// An interface: PerfMappingEvents implements it with perf. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_BPF_MAPPING_EVENTS_H_
#define HEAPTAP_USERSPACE_BPF_MAPPING_EVENTS_H_

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "userspace/elf/mappings.h"

namespace heaptap::bpf {

struct MappingEvent {
  enum Kind {
    kMap,   // the process maps a file for execution
    kExec,  // the process has a new, empty address space; its mappings follow
    kFork,  // the process is new and begins with its parent's mappings
    kEnd,   // its first thread has ended, usually with the process
  };
  Kind kind;
  uint64_t time;         // nanoseconds, CLOCK_MONOTONIC, the clock of bpf_ktime_get_ns
  pid_t pid;             // in the first PID namespace
  pid_t parent;          // of kFork
  elf::Mapping mapping;  // of kMap
  uint64_t since = 0;    // of kMap: it was mapped then at the earliest, and at `time` at the latest; 0: at `time`
};

class MappingEvents {
 public:
  virtual ~MappingEvents() = default;
  MappingEvents(const MappingEvents&) = delete;
  MappingEvents& operator=(const MappingEvents&) = delete;

  // File descriptors that become readable when a buffer is filling up.
  virtual std::vector<int> fds() const = 0;

  // All events so far, by time.
  virtual std::vector<MappingEvent> Take() = 0;

  // If only the events of some control groups are recorded: follows the group `now` instead of the group `before`
  // (descriptors of their folders); negative: none.
  virtual absl::Status ReplaceGroup(int before, int now) = 0;

  // Number of records since the start for which a buffer had no room.
  virtual uint64_t lost() const = 0;

 protected:
  MappingEvents() = default;
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_MAPPING_EVENTS_H_
