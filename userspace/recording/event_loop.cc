// SPDX-License-Identifier: Apache-2.0
#include "userspace/recording/event_loop.h"

#include <string.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "heaptap/contract.h"
#include "userspace/base/clock.h"
#include "userspace/base/messages.h"
#include "userspace/process/control_block.h"
#include "userspace/process/dump_request.h"

namespace heaptap::recording {
namespace {

// Names for metrics, by enum heaptap_event_kind; null: not counted.
constexpr const char* kEventNames[] = {nullptr, "start", "dump",  "fork",         "exec",  "exit",
                                       nullptr, nullptr, nullptr, "table_wanted", "reset", "enter"};

// Whether the last of several events of one kind replaces the earlier ones, so that a process which repeats an event
// costs no more than one event. A triggered dump includes the triggers before it; a process has one request at a time,
// so it no longer waits for the earlier ones; and a start describes the current memory.
bool LastSaysAll(uint32_t kind) {
  return kind == HEAPTAP_EVENT_HIGH_WATER || kind == HEAPTAP_EVENT_INTERVAL || kind == HEAPTAP_EVENT_DUMP ||
         kind == HEAPTAP_EVENT_START;
}

// Indices of events that a later one replaces.
std::set<ptrdiff_t> FindRepeated(const std::vector<heaptap_event>& events) {
  std::set<ptrdiff_t> repeated;
  std::set<std::tuple<uint32_t, bool, uint64_t, uint32_t>> later;
  for (ptrdiff_t i = std::ssize(events) - 1; i >= 0; i--) {
    const heaptap_event& event = events[i];
    // A process may ask for unwind tables while it waits for a dump.
    const bool is_for_tables = event.kind == HEAPTAP_EVENT_DUMP && process::RequestOf(event).kind == HEAPTAP_ASK_TABLES;
    // Processes that are not recorded have no process id, so the tgid tells them apart.
    const bool is_last = later.insert({event.kind, is_for_tables, event.process_id, event.tgid}).second;
    if (LastSaysAll(event.kind) && !is_last) repeated.insert(i);
  }
  return repeated;
}

std::string CommOf(const heaptap_event& event) {
  return base::AsciiOnly(absl::string_view(event.comm, strnlen(event.comm, sizeof(event.comm))));
}

}  // namespace

EventLoop::EventLoop(const Means& means) : means_(means) {}

void EventLoop::Fail(const absl::Status& status) {
  failed_ = true;
  base::Say(status.message());
}

std::vector<int> EventLoop::fds() const {
  std::vector<int> fds = {means_.books.events_fd(), means_.books.unwind().raw_stacks_fd(), means_.errands.fd(),
                          means_.looks.fd(), means_.orders.fd()};
  std::ranges::copy(means_.threads.fds(), std::back_inserter(fds));
  return fds;
}

void EventLoop::Pump() {
  const base::OneThread one_thread(thread_);
  const base::Instant now = base::Now();
  pumped_ = now;
  system_wide_->BeginBatch(now);
  means_.errands.HandleDone();
  means_.looks.HandleDone();
  means_.orders.HandleDone();
  means_.unwinding.BeginBatch();
  // Books are deleted one Pump after they were closed: at a reset, an eBPF program may have been in the middle of an
  // entry.
  means_.endings.ForgetClosed();
  // HandleDone comes after ForgetClosed, because it closes books too.
  means_.threads.HandleDone();
  if (means_.books.IsSweepDue()) Sweep();
  absl::StatusOr<Batch> batch = TakeBatch();
  if (!batch.ok()) return Fail(batch.status());
  CountEvents(batch->events);
  HandleTablesWanted(*batch);
  HandleInOrder(*batch);
  means_.endings.FindUnnoticed();
  system_wide_->EndBatch();
  means_.endings.CloseEnded(now);
  means_.unwinding.tables().kernel().Balance(now);
  means_.unwinding.tables().kernel().LoadSome();
  means_.requests.HandlePostponed();
}

// Mappings and raw stacks that are later than this and than all events wait for the next batch: they may belong to a
// process that is not known yet, or replace mappings that earlier raw stacks need. So everything that a process left is
// here when its end is handled.
absl::StatusOr<EventLoop::Batch> EventLoop::TakeBatch() {
  uint64_t until = base::Now().nanoseconds();
  absl::StatusOr<std::vector<heaptap_event>> events = means_.books.TakeEvents();
  if (!events.ok()) return events.status();
  for (const heaptap_event& event : *events) until = std::max<uint64_t>(until, event.time);
  Batch batch = {.until = until,
                 .events = *std::move(events),
                 .raw_stacks = std::exchange(raw_stacks_to_come_, {}),
                 .mappings = std::exchange(mappings_to_come_, {})};
  std::ranges::move(means_.books.unwind().TakeRawStacks(), std::back_inserter(batch.raw_stacks));
  std::ranges::stable_sort(batch.raw_stacks, {}, [](const bpf::RawStack& raw) -> uint64_t { return raw.header.time; });
  for (bpf::MappingEvent& event : means_.mapping_events.Take()) {
    if (event.kind == bpf::MappingEvent::kMap) batch.changed.insert(event.pid);
    batch.mappings.push_back(std::move(event));
  }
  std::ranges::stable_sort(batch.mappings, {}, &bpf::MappingEvent::time);
  return batch;
}

void EventLoop::Sweep() {
  if (std::exchange(is_sweeping_, true)) return;
  const auto status = std::make_shared<absl::Status>();
  means_.threads.cleaning.Run([this, status] { *status = means_.books.Sweep(); },
                              [this, status] {
                                is_sweeping_ = false;
                                if (!status->ok()) Fail(*status);
                              });
}

void EventLoop::CountEvents(const std::vector<heaptap_event>& events) {
  for (const heaptap_event& event : events) {
    if (event.kind < std::size(kEventNames) && kEventNames[event.kind] != nullptr) {
      events_counted_[kEventNames[event.kind]]++;
    }
  }
}

// Unwind tables come first, because processes wait for them.
void EventLoop::HandleTablesWanted(const Batch& batch) {
  for (const heaptap_event& event : batch.events) {
    if (event.kind == HEAPTAP_EVENT_TABLE_WANTED) means_.unwinding.HandleTableWanted(event, batch.mappings);
  }
  stale_.insert(batch.changed.begin(), batch.changed.end());
  std::erase_if(stale_, [this](pid_t pid) { return means_.books.unwind().InvalidateRules(pid); });
}

void EventLoop::HandleInOrder(Batch& batch) {
  auto mapping = batch.mappings.begin();
  auto raw_stack = batch.raw_stacks.begin();
  const auto handle_mappings_until = [&](uint64_t time) {
    for (; mapping != batch.mappings.end() && mapping->time <= time; ++mapping) HandleMapping(*mapping);
  };
  const auto handle_until = [&](uint64_t time) {
    for (; raw_stack != batch.raw_stacks.end() && raw_stack->header.time <= time; ++raw_stack) {
      handle_mappings_until(raw_stack->header.time);
      FinishRawStack(std::move(*raw_stack));
    }
    handle_mappings_until(time);
  };
  const std::set<ptrdiff_t> repeated = FindRepeated(batch.events);
  for (auto event = batch.events.begin(); event != batch.events.end(); ++event) {
    handle_until(event->time);
    if (!repeated.contains(event - batch.events.begin())) Handle(*event);
  }
  handle_until(batch.until);
  raw_stacks_to_come_.assign(std::make_move_iterator(raw_stack), std::make_move_iterator(batch.raw_stacks.end()));
  mappings_to_come_.assign(std::make_move_iterator(mapping), std::make_move_iterator(batch.mappings.end()));
}

void EventLoop::Handle(const heaptap_event& event) {
  switch (event.kind) {
    case HEAPTAP_EVENT_LIVE_FILLING:
      return Sweep();
    case HEAPTAP_EVENT_TABLE_WANTED:
      return;  // already handled in HandleTablesWanted
    case HEAPTAP_EVENT_ENTER:
      if (!IsOver(event)) system_wide_->HandleEnter(event);
      return;
    case HEAPTAP_EVENT_FORK:
      return HandleFork(event);
    case HEAPTAP_EVENT_EXEC:
      return HandleExec(event);
    case HEAPTAP_EVENT_RESET:
      return HandleReset(event);
    case HEAPTAP_EVENT_EXIT:
      return HandleExit(event);
    default:
      return HandleOfTarget(event);
  }
}

bool EventLoop::IsOver(const heaptap_event& event) {
  const bpf::Processes& processes = means_.books.processes();
  if (means_.endings.IsClosed(event.process_id)) return true;
  return means_.targets.Find(event.process_id) == nullptr &&
         !processes.IsCurrent(static_cast<pid_t>(event.tgid), event.process_id) &&
         !processes.IsUnnoticed(event.process_id);
}

void EventLoop::HandleFork(const heaptap_event& event) {
  if (IsOver(event)) return;
  Target& child = AddTarget(event.process_id, event.tgid);
  child.name = CommOf(event);
  if (const Target* parent = means_.targets.Find(event.argument); parent != nullptr) {
    // The child has its parent's memory, and so its parent's allocator, which will fire heaptap:start.
    Controls::NoteParent(child, *parent);
    child.policy = parent->policy;
    // The child was forked while no recorder was running.
    if (means_.spaces.Find(child.pid) == nullptr) {
      means_.spaces.Apply({.kind = bpf::MappingEvent::kFork,
                           .time = event.time,
                           .pid = child.pid,
                           .parent = parent->pid,
                           .mapping = {}});
    }
  }
  // The child is recorded as long as it lives, even if its first thread ends before the others.
  means_.spaces.Hold(child.pid);
}

void EventLoop::HandleExec(const heaptap_event& event) {
  // The process has left the control groups of the recording.
  if (event.process_id == HEAPTAP_NO_PROCESS) return means_.endings.Close(event.argument);
  if (IsOver(event)) return;
  Target& next = AddTarget(event.process_id, event.tgid);
  next.name = CommOf(event);
  next.has_execed = true;
  if (const Target* before = means_.targets.Find(event.argument); before != nullptr) next.policy = before->policy;
  means_.spaces.Hold(event.tgid);
  if (!means_.options.follow) {
    base::Say(absl::StrCat("process ", event.tgid, " now runs another program (exec); its profile starts over"));
  }
  // After a vfork (argument 0) the books are the parent's and stay open.
  if (event.argument != 0) means_.endings.Close(event.argument);
}

void EventLoop::HandleReset(const heaptap_event& event) {
  const bool is_known = means_.targets.Find(event.argument) != nullptr;
  if (!is_known && IsOver(event)) return means_.endings.Close(event.argument);
  Target& target =
      is_known ? means_.endings.Replace(event.argument, event.process_id) : AddTarget(event.process_id, event.tgid);
  if (!is_known) means_.endings.Close(event.argument);
  Controls::NoteOwnRate(target, process::RequestOf(event).argument);
}

void EventLoop::HandleExit(const heaptap_event& event) {
  if (event.process_id == 0) return means_.spaces.Drop(event.tgid);
  Target* target = means_.targets.Find(event.process_id);
  // The target is unknown if its beginning was missed, if another recorder saw it, or if it is already closed.
  if (target == nullptr) {
    if (means_.endings.IsClosed(event.process_id) || !means_.books.processes().IsUnnoticed(event.process_id)) return;
    target = &AddTarget(event.process_id, event.tgid);
  }
  means_.endings.Handle(*target, {.status = static_cast<int>(static_cast<uint32_t>(event.argument)),
                                  .by_oom_kill = (event.argument & HEAPTAP_EXIT_BY_OOM_KILL) != 0,
                                  .peak = event.peak_weight,
                                  .time = base::WallNow(),
                                  .space = nullptr});
}

void EventLoop::HandleOfTarget(const heaptap_event& event) {
  Target* const target = means_.targets.Find(event.process_id);
  if (target == nullptr) {
    if (event.kind == HEAPTAP_EVENT_DUMP) means_.requests.RefuseDump(event);
    return;
  }
  target->name = CommOf(event);
  switch (event.kind) {
    case HEAPTAP_EVENT_START:
      return HandleStart(*target, event);
    case HEAPTAP_EVENT_DUMP:
      return means_.requests.HandleDump(*target, event);
    case HEAPTAP_EVENT_HIGH_WATER:
      return means_.requests.HandleTrigger(*target, HEAPTAP_DUMP_HIGH_WATER);
    case HEAPTAP_EVENT_INTERVAL:
      return means_.requests.HandleTrigger(*target, HEAPTAP_DUMP_INTERVAL);
  }
}

void EventLoop::HandleStart(Target& target, const heaptap_event& event) {
  heaptap_control control;
  memcpy(&control, event.memory, sizeof(control));
  const bool is_control = means_.controls.NoteStart(target, control, event.argument).ok();
  target.is_saved = false;
  system_wide_->HandleStart(target, [this, is_control, control](Target& now) {
    if (is_control && now.policy->record) means_.controls.Take(now, control);
  });
}

void EventLoop::HandleMapping(const bpf::MappingEvent& event) {
  if (!means_.unwinding.moved_code().Apply(event) || event.mapping.inode == 0) return;
  // Only recorded processes need unwind tables, but any process may map an allocator.
  if (means_.spaces.IsHeld(event.pid)) {
    means_.unwinding.HandleMapping(event);
    if (Target* target = means_.targets.FindRunning(event.pid); target != nullptr) target->is_saved = false;
  }
  means_.allocators.Look(event);
}

void EventLoop::FinishRawStack(bpf::RawStack raw) {
  const Target* target = means_.targets.Find(raw.header.process_id);
  if (target == nullptr) return;
  std::shared_ptr<const AddressSpace> space =
      target->ending.has_value() ? target->ending->space : means_.spaces.Share(target->pid);
  if (space != nullptr) means_.unwinding.HandleRawStack(std::move(raw), target->pid, std::move(space));
}

}  // namespace heaptap::recording
