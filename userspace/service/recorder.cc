// SPDX-License-Identifier: Apache-2.0
//
// Starts a recording and dispatches its events. Mappings and stacks are in recorder_mappings.cc, ends in
// recorder_exits.cc, dumps in recorder_dumps.cc, system-wide recording in recorder_system_wide.cc, clients' calls in
// recorder_clients.cc.
#include "userspace/service/recorder.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/elf/mappings.h"
#include "userspace/service/control_block.h"
#include "userspace/service/dump_request.h"
#include "userspace/service/messages.h"

namespace heaptap::service {
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
    const bool is_for_tables = event.kind == HEAPTAP_EVENT_DUMP && RequestOf(event).kind == HEAPTAP_ASK_TABLES;
    // Processes that are not recorded have no process id, so the tgid tells them apart.
    const bool is_last = later.insert({event.kind, is_for_tables, event.process_id, event.tgid}).second;
    if (LastSaysAll(event.kind) && !is_last) repeated.insert(i);
  }
  return repeated;
}

std::string CommOf(const heaptap_event& event) {
  return Printable(absl::string_view(event.comm, strnlen(event.comm, sizeof(event.comm))));
}

uint64_t MonotonicNanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

absl::StatusOr<DumpFolder> Recorder::OpenFolder(const RecorderOptions& options) {
  return DumpFolder::Open(options.system_wide.has_value() ? absl::StrCat(options.system_wide->state_folder, "/heaptap")
                                                          : options.prefix);
}

absl::StatusOr<std::unique_ptr<Recorder>> Recorder::Start(const RecorderOptions& options) {
  absl::StatusOr<DumpFolder> folder = OpenFolder(options);
  if (!folder.ok()) return folder.status();
  std::optional<bpf::Pins> pins;
  if (options.system_wide.has_value() && !options.system_wide->pin_folder.empty()) {
    absl::StatusOr<bpf::Pins> opened = bpf::Pins::Open(options.system_wide->pin_folder, bpf::Books::Layout());
    if (!opened.ok()) return opened.status();
    pins = *std::move(opened);
  }
  absl::StatusOr<std::unique_ptr<bpf::Books>> books =
      pins.has_value() ? bpf::Books::LoadOrAdopt(options.map_sizes, *pins) : bpf::Books::Load(options.map_sizes);
  if (!books.ok()) return books.status();
  absl::StatusOr<std::unique_ptr<bpf::MappingEvents>> mapping_events = bpf::MappingEvents::Start();
  if (!mapping_events.ok()) return mapping_events.status();
  std::unique_ptr<Recorder> recorder(
      new Recorder(options, *std::move(folder), std::move(pins), *std::move(books), *std::move(mapping_events)));
  if (!options.system_wide.has_value()) return recorder;
  if (absl::Status status = recorder->StartSystemWide(); !status.ok()) {
    // A failed start must leave nothing in the kernel.
    if (!recorder->took_over()) recorder->End();
    return status;
  }
  return recorder;
}

Recorder::Recorder(const RecorderOptions& options, DumpFolder folder, std::optional<bpf::Pins> pins,
                   std::unique_ptr<bpf::Books> books, std::unique_ptr<bpf::MappingEvents> mapping_events)
    : options_(options),
      folder_(std::move(folder)),
      pins_(std::move(pins)),
      books_(std::move(books)),
      mapping_events_(std::move(mapping_events)),
      probe_files_(*books_, pins_.has_value() ? &*pins_ : nullptr),
      tables_(books_->unwind(), options_.map_sizes.unwind_bytes),
      spaces_(options_.system_wide.has_value() ? AddressSpaces::Scope::kSystemWide
              : options_.follow                ? AddressSpaces::Scope::kKeptAndChildren
                                               : AddressSpaces::Scope::kKept) {
  tables_.EnterVdso();
}

absl::Status Recorder::RecordChild(pid_t pid) {
  spaces_.Keep(pid, {});
  absl::StatusOr<uint64_t> process_id = books_->Track(pid, options_.follow, options_.policy.triggers);
  if (!process_id.ok()) return process_id.status();
  AddTarget(*process_id, pid);
  return absl::OkStatus();
}

absl::Status Recorder::RecordRunning(pid_t pid) {
  absl::StatusOr<ProcessHandle> handle = ProcessHandle::Open(pid);
  if (!handle.ok()) return handle.status();
  absl::StatusOr<std::vector<elf::Mapping>> mappings = elf::ReadExecutableMappings(pid);
  if (!mappings.ok()) return mappings.status();

  AddressSpace space;
  space.executable = ProcessExecutable(pid);
  struct Found {
    elf::MappedFile file;
    std::string name;
  };
  std::vector<Found> found;
  std::set<std::pair<uint32_t, uint64_t>> seen;  // device and inode
  uint64_t control_address = 0;
  for (const elf::Mapping& mapping : *mappings) {
    space.mappings.Add(mapping);
    if (mapping.inode == 0 || !seen.insert({KernelDevice(mapping), mapping.inode}).second) continue;
    absl::StatusOr<elf::MappedFile> file = elf::OpenMapped(pid, mapping);
    if (!file.ok()) continue;
    absl::StatusOr<Allocator> allocator = ReadAllocator(file->file.get());
    if (!allocator.ok()) {
      Say(absl::StrCat(Printable(mapping.path), ": ", allocator.status().message(), "; this file is skipped"));
      continue;
    }
    if (!allocator->HasSamples()) continue;
    if (absl::StatusOr<uint64_t> address = FindControl(file->file.get(), mapping); address.ok()) {
      control_address = *address;
    }
    found.push_back({*std::move(file), mapping.path});
  }
  const std::string name = absl::StrCat("process ", pid, " (", ProcessName(pid), ")");
  if (found.empty()) {
    return absl::NotFoundError(
        absl::StrCat(name, " has no sampled allocator: start it with LD_PRELOAD=/path/to/libheaptap.so, then attach"));
  }
  absl::StatusOr<heaptap_control> control = absl::NotFoundError("none");
  if (control_address != 0) {
    control = ReadControl(*handle, control_address);
    if (!control.ok()) return control.status();
    if (const pid_t other = OtherCollector(*control); other != 0) {
      return absl::FailedPreconditionError(absl::StrCat(name, " is already recorded by another heaptap (process ",
                                                        other, "): if that is the daemon, use heaptap dump ", pid,
                                                        "; otherwise end it first"));
    }
  }

  PrepareTables(pid, *mappings);
  absl::StatusOr<uint64_t> process_id = books_->Track(pid, options_.follow, options_.policy.triggers);
  if (!process_id.ok()) return process_id.status();
  // If the process has ended, its PID may be reused, and nothing will remove the entry.
  if (handle->HasEnded()) {
    books_->Untrack(pid);
    return absl::NotFoundError(absl::StrCat("process ", pid, " has ended"));
  }
  spaces_.Keep(pid, std::move(space));
  Target& target = AddTarget(*process_id, pid);
  target.started = true;
  target.name = ProcessName(pid);
  if (options_.system_wide.has_value()) ApplyPolicy(target);
  if (!target.policy.record) {
    // Still attach: other processes may use its files too.
  } else if (control.ok()) {
    UseControl(target, *control, control_address);
    if (control->active == 0) {
      Say(absl::StrCat(name, " has prof.active off: nothing is recorded until the process switches it on"));
    }
  } else if (options_.policy.lg_sample.has_value()) {
    Say(absl::StrCat(name, " has no control block, so heaptap cannot set its rate: it samples at its own"));
  }
  for (const Found& one : found) {
    absl::StatusOr<bool> attached = probe_files_.Attach(one.file.file.get(), one.file.path, Printable(one.name),
                                                        options_.follow ? ProbeFiles::kEveryProcess : pid);
    if (attached.ok()) continue;
    if (!options_.system_wide.has_value()) {
      Abandon();
      return attached.status();
    }
    Say(absl::StrCat(attached.status().message(), "; this file is skipped"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ProcessHandle> Recorder::Open(pid_t pid, uint64_t process_id) const {
  absl::StatusOr<ProcessHandle> handle = ProcessHandle::Open(pid);
  if (!handle.ok()) return handle;
  // The PID still has its books, so it was not reused before the handle was opened.
  if (!books_->IsCurrent(pid, process_id)) return absl::NotFoundError(absl::StrCat("process ", pid, " has ended"));
  return handle;
}

Target& Recorder::AddTarget(uint64_t process_id, pid_t pid) {
  auto [found, is_new] = targets_.try_emplace(process_id);
  Target& target = found->second;
  if (!is_new) return target;
  target.process_id = process_id;
  target.pid = pid;
  target.since = absl::Now();
  target.dumped = target.since;
  target.policy = options_.policy;
  return target;
}

Target* Recorder::FindTarget(uint64_t process_id) {
  const auto found = targets_.find(process_id);
  return found == targets_.end() ? nullptr : &found->second;
}

Target* Recorder::FindRunning(pid_t pid) {
  for (auto& [process_id, target] : targets_) {
    if (target.pid == pid && !target.ending.has_value()) return &target;
  }
  return nullptr;
}

void Recorder::CopyAllocatorFacts(const Target& from, Target& to) {
  to.control_address = from.control_address;
  to.allocator = from.allocator;
  to.policy = from.policy;
  to.own_lg_sample = from.own_lg_sample;
  to.max_frames = from.max_frames;
  to.raw = from.raw;
}

bool Recorder::IsRecorded(pid_t pid) const {
  return std::any_of(targets_.begin(), targets_.end(), [&](const auto& entry) { return entry.second.pid == pid; });
}

std::vector<int> Recorder::fds() const {
  std::vector<int> fds = mapping_events_->fds();
  fds.push_back(books_->events_fd());
  fds.push_back(books_->unwind().raw_stacks_fd());
  return fds;
}

void Recorder::Pump() {
  summaries_.reset();
  if (answers_.Reap() != 0) failed_ = true;
  // One Pump after they were closed: at a reset, an eBPF program may have been in the middle of an entry.
  ForgetClosed();
  // Mappings and raw stacks that are later than this and than all events wait for the next Pump: they may belong to a
  // process that is not known yet, or replace mappings that earlier raw stacks need. So everything that a process left
  // is here when its end is handled.
  uint64_t until = MonotonicNanoseconds();
  absl::StatusOr<std::vector<heaptap_event>> events = books_->TakeEvents();
  if (!events.ok()) return Fail(events.status());
  for (const heaptap_event& event : *events) until = std::max<uint64_t>(until, event.time);
  std::vector<bpf::RawStack> raw_stacks = std::exchange(raw_stacks_to_come_, {});
  std::vector<bpf::RawStack> new_stacks = books_->unwind().TakeRawStacks();
  std::move(new_stacks.begin(), new_stacks.end(), std::back_inserter(raw_stacks));
  std::stable_sort(raw_stacks.begin(), raw_stacks.end(),
                   [](const bpf::RawStack& a, const bpf::RawStack& b) { return a.header.time < b.header.time; });
  std::vector<bpf::MappingEvent> mappings = std::exchange(mappings_to_come_, {});
  const std::vector<bpf::MappingEvent> news = mapping_events_->Take();
  mappings.insert(mappings.end(), news.begin(), news.end());
  std::stable_sort(mappings.begin(), mappings.end(),
                   [](const bpf::MappingEvent& a, const bpf::MappingEvent& b) { return a.time < b.time; });
  // Unwind tables come first, because processes wait for them.
  for (const heaptap_event& event : *events) {
    if (event.kind == HEAPTAP_EVENT_TABLE_WANTED) HandleTableWanted(event, mappings);
    if (event.kind < std::size(kEventNames) && kEventNames[event.kind] != nullptr) {
      events_counted_[kEventNames[event.kind]]++;
    }
  }
  std::set<pid_t> changed;
  for (const bpf::MappingEvent& event : news) {
    if (event.kind == bpf::MappingEvent::kMap) changed.insert(event.pid);
  }
  for (const pid_t pid : changed) books_->unwind().InvalidateRules(pid);
  ReadAhead(news);
  const std::set<ptrdiff_t> comes_again = FindRepeated(*events);
  auto mapping = mappings.begin();
  auto raw_stack = raw_stacks.begin();
  const auto handle_until = [&](uint64_t time) {
    for (; raw_stack != raw_stacks.end() && raw_stack->header.time <= time; ++raw_stack) {
      for (; mapping != mappings.end() && mapping->time <= raw_stack->header.time; ++mapping) HandleMapping(*mapping);
      FinishRawStack(*raw_stack);
    }
    for (; mapping != mappings.end() && mapping->time <= time; ++mapping) HandleMapping(*mapping);
  };
  for (auto event = events->begin(); event != events->end(); ++event) {
    handle_until(event->time);
    if (!comes_again.contains(event - events->begin())) Handle(*event);
  }
  handle_until(until);
  raw_stacks_to_come_.assign(std::make_move_iterator(raw_stack), std::make_move_iterator(raw_stacks.end()));
  mappings_to_come_.assign(std::make_move_iterator(mapping), std::make_move_iterator(mappings.end()));
  if (books_->EventsLost() != events_lost_) FindUnnoticed();
  const absl::Time now = absl::Now();
  InspectNewcomers();
  for (const uint64_t process_id : std::exchange(ignored_, {})) Close(process_id);
  CloseEnded(now);
  tables_.Balance(now);
}

void Recorder::Handle(const heaptap_event& event) {
  Target* target = FindTarget(event.process_id);
  if (event.kind == HEAPTAP_EVENT_LIVE_FILLING) {
    if (absl::Status status = books_->Sweep(); !status.ok()) Fail(status);
    return;
  }
  if (event.kind == HEAPTAP_EVENT_TABLE_WANTED) return;  // already handled in Pump
  const bool begins =
      event.kind == HEAPTAP_EVENT_FORK || event.kind == HEAPTAP_EVENT_EXEC || event.kind == HEAPTAP_EVENT_ENTER;
  // An earlier recorder may have closed the process and been killed before it consumed the event.
  if (begins && target == nullptr && !books_->IsCurrent(static_cast<pid_t>(event.tgid), event.process_id) &&
      !books_->IsUnnoticed(event.process_id)) {
    return;
  }
  if (event.kind == HEAPTAP_EVENT_FORK) {
    Target& child = AddTarget(event.process_id, event.tgid);
    child.name = CommOf(event);
    if (const Target* parent = FindTarget(event.argument); parent != nullptr) {
      // The child has its parent's memory, and so its parent's allocator, which will fire heaptap:start.
      CopyAllocatorFacts(*parent, child);
      // The child was forked while no recorder was running.
      if (spaces_.Find(child.pid) == nullptr) {
        spaces_.Apply({.kind = bpf::MappingEvent::kFork,
                       .time = event.time,
                       .pid = child.pid,
                       .parent = parent->pid,
                       .mapping = {},
                       .generation = 0});
      }
    }
    // The child is recorded as long as it lives, even if its first thread ends before the others.
    spaces_.Hold(child.pid);
    return;
  }
  if (event.kind == HEAPTAP_EVENT_EXEC) {
    Target& next = AddTarget(event.process_id, event.tgid);
    next.name = CommOf(event);
    if (const Target* before = FindTarget(event.argument); before != nullptr) next.policy = before->policy;
    spaces_.Hold(event.tgid);
    if (!options_.follow) {
      Say(absl::StrCat("process ", event.tgid, " now runs another program (exec); its profile starts over"));
    }
    // After a vfork (argument 0) the books are the parent's and stay open.
    if (event.argument != 0) Close(event.argument);
    return;
  }
  if (event.kind == HEAPTAP_EVENT_RESET) return HandleReset(event);
  if (event.kind == HEAPTAP_EVENT_ENTER) return HandleEnter(event);
  if (event.kind == HEAPTAP_EVENT_EXIT) {
    if (event.process_id == 0) return spaces_.Drop(event.tgid);
    // The target is unknown if its beginning was missed, if another recorder saw it, or if it is already closed.
    if (target == nullptr) {
      if (closed_.contains(event.process_id) || !books_->IsUnnoticed(event.process_id)) return;
      target = &AddTarget(event.process_id, event.tgid);
    }
    return HandleExit(*target, {.status = static_cast<int>(static_cast<uint32_t>(event.argument)),
                                .by_oom_kill = (event.argument & HEAPTAP_EXIT_BY_OOM_KILL) != 0,
                                .peak = event.peak_weight,
                                .time = absl::Now(),
                                .space = nullptr});
  }
  if (target == nullptr) {
    if (event.kind == HEAPTAP_EVENT_DUMP) RefuseDump(event);
    return;
  }
  target->name = CommOf(event);
  switch (event.kind) {
    case HEAPTAP_EVENT_START:
      return HandleStart(*target, event);
    case HEAPTAP_EVENT_DUMP:
      return HandleDump(*target, event);
    case HEAPTAP_EVENT_HIGH_WATER:
      return HandleTrigger(*target, HEAPTAP_DUMP_HIGH_WATER);
    case HEAPTAP_EVENT_INTERVAL:
      return HandleTrigger(*target, HEAPTAP_DUMP_INTERVAL);
  }
}

void Recorder::HandleStart(Target& target, const heaptap_event& event) {
  heaptap_control control;
  memcpy(&control, event.memory, sizeof(control));
  target.started = true;
  target.is_saved = false;
  newcomers_.erase(target.process_id);
  if (options_.system_wide.has_value()) {
    ApplyPolicy(target);
    // The process began before mappings were watched.
    if (!spaces_.Hold(target.pid)) Inspect(target);
  }
  if (absl::Status status = CheckControl(control, target.pid); !status.ok()) {
    if (!std::exchange(target.control_refused, true)) {
      Say(absl::StrCat(status.message(), "; its stacks are shown with the allocator's frames"));
    }
    return;
  }
  if (target.policy.record) UseControl(target, control, event.argument);
}

void Recorder::HandleReset(const heaptap_event& event) {
  const heaptap_dump_request asked = RequestOf(event);
  const bool is_known = FindTarget(event.argument) != nullptr;
  Target& target = is_known ? Replace(event.argument, event.process_id) : AddTarget(event.process_id, event.tgid);
  if (!is_known) Close(event.argument);
  target.own_lg_sample = static_cast<uint32_t>(std::min<uint64_t>(asked.argument, HEAPTAP_MAX_LG_SAMPLE));
}

Target& Recorder::Replace(uint64_t ended_id, uint64_t new_id) {
  Target target = targets_.at(ended_id);
  target.process_id = new_id;
  Close(ended_id);
  return targets_.insert_or_assign(new_id, std::move(target)).first->second;
}

void Recorder::Fail(const absl::Status& status) {
  failed_ = true;
  Say(status.message());
}

}  // namespace heaptap::service
