// SPDX-License-Identifier: Apache-2.0
//
// Takes what the kernel sends to a recording (events, mappings, raw stacks), sorts it by time, and hands each item to
// the part that it concerns. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_RECORDING_EVENT_LOOP_H_
#define HEAPTAP_USERSPACE_RECORDING_EVENT_LOOP_H_

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bpf/events.h"
#include "userspace/attach/allocators.h"
#include "userspace/base/clock.h"
#include "userspace/base/thread_checker.h"
#include "userspace/bpf/books.h"
#include "userspace/bpf/mapping_events.h"
#include "userspace/bpf/unwind_maps.h"
#include "userspace/crews/errands.h"
#include "userspace/crews/looks.h"
#include "userspace/dumps/recorder_options.h"
#include "userspace/dumps/requests.h"
#include "userspace/profile/figures.h"
#include "userspace/recording/endings.h"
#include "userspace/recording/system_wide_part.h"
#include "userspace/recording/threads.h"
#include "userspace/spaces/address_spaces.h"
#include "userspace/tables/unwinding.h"
#include "userspace/targets/controls.h"
#include "userspace/targets/target.h"
#include "userspace/targets/target_table.h"

namespace heaptap::recording {

class EventLoop {
 public:
  // The objects that this one uses. They must outlive it.
  struct Means {
    bpf::Books& books;
    bpf::MappingEvents& mapping_events;
    worker::Errands& errands;
    worker::Looks& looks;
    worker::Looks& orders;
    TargetTable& targets;
    AddressSpaces& spaces;
    Controls& controls;
    Allocators& allocators;
    Unwinding& unwinding;
    Requests& requests;
    Endings& endings;
    Threads& threads;
    const RecorderOptions& options;
  };
  explicit EventLoop(const Means& means);

  // The recording is system-wide. `part` must outlive this object.
  void Use(SystemWidePart& part) { system_wide_ = &part; }

  // Readable when something must be handled at once.
  std::vector<int> fds() const;
  // Handles everything that has happened since the last call.
  void Pump();
  // When Pump was called last.
  base::Instant pumped() const { return pumped_; }

  // Events by their names for metrics.
  const profile::CountsByName& events_counted() const { return events_counted_; }
  // Whether the books failed (the error is already printed).
  bool failed() const { return failed_; }

 private:
  // What has happened up to a time. Raw stacks and mappings are in the order of time, events in the order in which they
  // were sent.
  struct Batch {
    uint64_t until;
    std::vector<heaptap_event> events;
    std::vector<bpf::RawStack> raw_stacks;
    std::vector<bpf::MappingEvent> mappings;
    std::set<pid_t> changed = {};  // processes with new mappings
  };
  absl::StatusOr<Batch> TakeBatch();
  void HandleTablesWanted(const Batch& batch);
  void HandleInOrder(Batch& batch);
  // Begins a sweep, unless one is going on.
  void Sweep();
  void CountEvents(const std::vector<heaptap_event>& events);

  void Handle(const heaptap_event& event);
  void HandleFork(const heaptap_event& event);
  void HandleExec(const heaptap_event& event);
  void HandleReset(const heaptap_event& event);
  void HandleExit(const heaptap_event& event);
  // Handles an event of one process, whether or not it is a target.
  void HandleOfTarget(const heaptap_event& event);
  void HandleStart(Target& target, const heaptap_event& event);
  void HandleMapping(const bpf::MappingEvent& event);
  // Finishes a stack that the kernel could not unwind.
  void FinishRawStack(bpf::RawStack raw);

  // Whether the books that begin with the event are closed already. Their end may be found before their beginning,
  // perhaps by an earlier recorder that was killed before it consumed the event.
  bool IsOver(const heaptap_event& event);
  Target& AddTarget(uint64_t process_id, pid_t pid) {
    return means_.targets.Add(process_id, pid, means_.options.policy);
  }
  void Fail(const absl::Status& status);

  const Means means_;
  SystemWidePart nothing_;
  SystemWidePart* system_wide_ = &nothing_;
  // Raw stacks and mappings that were read, but are later than the events that were read with them.
  std::vector<bpf::RawStack> raw_stacks_to_come_;
  std::set<pid_t> stale_;  // processes with new mappings whose cached rules are still to be made invalid
  std::vector<bpf::MappingEvent> mappings_to_come_;
  profile::CountsByName events_counted_;
  base::Instant pumped_ = base::Instant::InfinitePast();
  bool is_sweeping_ = false;
  bool failed_ = false;
  base::ThreadChecker thread_;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_RECORDING_EVENT_LOOP_H_
