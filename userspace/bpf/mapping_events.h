// SPDX-License-Identifier: Apache-2.0
//
// Executable mappings of every process on the machine, as they happen: perf's mmap, comm and fork records of a software
// event that never counts. So the mappings of a process are known even after it has ended.
//
// Needs CAP_PERFMON. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_BPF_MAPPING_EVENTS_H_
#define HEAPTAP_USERSPACE_BPF_MAPPING_EVENTS_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
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
  uint32_t generation;   // of the mapped file's inode number
};

class MappingEvents {
 public:
  // Opens a buffer for each CPU and starts recording.
  static absl::StatusOr<std::unique_ptr<MappingEvents>> Start();
  ~MappingEvents();

  // File descriptors that become readable when a buffer is filling up.
  std::vector<int> fds() const;

  // All events so far, by time.
  std::vector<MappingEvent> Take();

  // Number of records since the start for which a buffer had no room.
  uint64_t lost() const { return lost_; }

 private:
  struct Buffer {
    int fd = -1;
    void* memory = nullptr;
  };
  MappingEvents() = default;
  absl::Status OpenCpu(int cpu);
  void Read(const Buffer& buffer, std::vector<MappingEvent>& events);

  std::vector<Buffer> buffers_;
  uint64_t lost_ = 0;
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_MAPPING_EVENTS_H_
