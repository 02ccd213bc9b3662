// SPDX-License-Identifier: Apache-2.0
//
// Books and mapping events in memory, for tests of a recording without the kernel.
//
// SimulatedKernel has the state that outlives a collector, and functions that do to it what the eBPF programs do when a
// process begins, samples or ends. Tests read and change the state directly too. Several SimulatedBooks may use one
// kernel, one after the other, as collectors do.
//
// A collector can die in front of any step: a call of the books throws CollectorDied. Forget and Sweep consist of
// several steps, in the order of KernelBooks.
#ifndef HEAPTAP_TESTS_UNIT_SUPPORT_SIMULATED_BOOKS_H_
#define HEAPTAP_TESTS_UNIT_SUPPORT_SIMULATED_BOOKS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/bpf/books.h"
#include "userspace/bpf/mapping_events.h"

namespace heaptap::bpf {

struct CollectorDied {
  std::string step;
};

class SimulatedKernel {
 public:
  // The programs at work. Process ids are even; PIDs may be of processes that do not exist.
  //
  // The process enters a system-wide recording.
  uint64_t Enter(pid_t pid, const std::string& comm);
  // A live sample of `bytes` bytes, with a weight of as many, and a call path of its own.
  void Sample(uint64_t process_id, uint64_t bytes);
  uint64_t Fork(uint64_t parent_id, pid_t child, const std::string& comm);
  // Returns the process id of the new image.
  uint64_t Exec(pid_t pid, const std::string& comm);
  // Returns the process id of the new books. `lg_sample`: the rate that the process has from now on.
  uint64_t Reset(pid_t pid, uint32_t lg_sample);
  void Exit(pid_t pid, const std::string& comm, uint32_t status = 0, bool by_oom_kill = false);
  heaptap_event MakeEvent(heaptap_event_kind kind, pid_t pid, uint64_t process_id, const std::string& comm,
                          uint64_t argument = 0) const;
  void Send(const heaptap_event& event);
  // Nanoseconds of the monotonic clock (base/clock.h).
  static uint64_t Now();

  // Whether the kernel has anything of these books.
  bool HasBooks(uint64_t process_id) const;

  // Called before each step of a collector.
  void Step(const std::string& step);
  // Called instead of a run of a program.
  absl::Status Run();

  // IsCurrent may be called by any thread, everything else by that of the recorder only.
  mutable absl::Mutex mutex;
  std::map<uint64_t, RecordedProcess> processes ABSL_GUARDED_BY(mutex);
  std::map<uint64_t, EndedBooks> unnoticed;
  std::map<uint64_t, std::vector<TallyEntry>> tallies;
  std::map<uint64_t, heaptap_stack> stacks;
  std::map<uint64_t, LiveTotals> live;
  std::map<uint64_t, std::vector<heaptap_live>> objects;  // by process id
  std::map<uint64_t, Losses> losses;
  std::map<std::pair<uint64_t, uint32_t>, ThreadName> names;
  std::map<uint64_t, std::vector<heaptap_record>> records;
  std::set<uint64_t> closed;
  heaptap_settings settings = {};
  std::vector<heaptap_event> events;  // in the order in which they were sent
  uint64_t events_lost = 0;
  bool loses_events = false;  // there is no room for further events
  std::vector<MappingEvent> mappings;
  uint64_t mappings_lost = 0;
  std::vector<RawStack> raw_stacks;
  uint64_t next_collector_id = 1;
  // So many of the next readings of all tallies find the kernel without memory; and of the programs that are run,
  // except Fold.
  int readings_to_fail = 0;
  int runs_to_fail = 0;
  std::vector<pid_t> invalidated;  // processes whose cached rules were made invalid, in that order
  std::map<uint64_t, std::vector<heaptap_free>> frees_taken;  // by process id
  // Called by IsCurrent, in any thread.
  std::function<void(pid_t pid)> on_is_current = {};
  // Called by Step.
  std::function<void(const std::string& step)> on_step = {};
  // Steps until the collector dies; none: it lives.
  std::optional<int> steps_left = {};

 private:
  // The process stops being recorded.
  RecordedProcess Take(pid_t pid);
  uint32_t FlagsOf(uint64_t process_id) const;
  uint64_t Add(pid_t pid, uint64_t parent_id, uint32_t flags);

  uint64_t next_process_id_ = 2;
  uint64_t next_stack_id_ = 1;
};

// `kernel` must outlive the books. `adopts`: takes over what an earlier collector left.
std::unique_ptr<Books> MakeSimulatedBooks(SimulatedKernel& kernel, bool adopts);
std::unique_ptr<MappingEvents> MakeSimulatedMappingEvents(SimulatedKernel& kernel);

}  // namespace heaptap::bpf

#endif  // HEAPTAP_TESTS_UNIT_SUPPORT_SIMULATED_BOOKS_H_
