// SPDX-License-Identifier: Apache-2.0
//
// Starts a recording and dispatches its events. Mappings and stacks are in recorder_mappings.cc, ends in
// recorder_exits.cc, dumps in recorder_dumps.cc, system-wide recording in recorder_system_wide.cc, clients' calls in
// recorder_clients.cc.
#include "userspace/recording/recorder.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/base/messages.h"
#include "userspace/bpf/kernel_books.h"
#include "userspace/bpf/perf_mapping_events.h"
#include "userspace/elf/mappings.h"
#include "userspace/process/control_block.h"
#include "userspace/process/dump_request.h"
#include "userspace/process/facts.h"
#include "userspace/recording/other_layouts.h"

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

// At the start, for the files of running processes.
constexpr absl::Duration kStartPatience = absl::Seconds(10);

// At the end of a recording, for unwind tables.
constexpr absl::Duration kTablesPatience = absl::Seconds(20);

// For a look at a process whose user is the one who waits.
constexpr absl::Duration kHandsPatience = absl::Seconds(10);

// For the files of a process that a command attaches to.
constexpr absl::Duration kPatience = absl::Seconds(60);

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
    absl::StatusOr<bpf::Pins> opened = bpf::Pins::Open(options.system_wide->pin_folder, bpf::KernelBooks::Layout());
    if (!opened.ok()) return opened.status();
    pins = *std::move(opened);
  }
  absl::StatusOr<std::unique_ptr<bpf::Books>> books = pins.has_value()
                                                          ? bpf::KernelBooks::LoadOrAdopt(options.map_sizes, *pins)
                                                          : bpf::KernelBooks::Load(options.map_sizes);
  if (!books.ok()) return books.status();
  absl::StatusOr<std::unique_ptr<bpf::MappingEvents>> mapping_events = bpf::PerfMappingEvents::Start();
  if (!mapping_events.ok()) return mapping_events.status();
  return Begin(options, *std::move(folder),
               {.pins = std::move(pins), .books = *std::move(books), .mapping_events = *std::move(mapping_events)});
}

absl::StatusOr<std::unique_ptr<Recorder>> Recorder::Start(const RecorderOptions& options, Kernel kernel) {
  absl::StatusOr<DumpFolder> folder = OpenFolder(options);
  if (!folder.ok()) return folder.status();
  return Begin(options, *std::move(folder), std::move(kernel));
}

absl::StatusOr<std::unique_ptr<Recorder>> Recorder::Begin(const RecorderOptions& options, DumpFolder folder,
                                                          Kernel kernel) {
  std::unique_ptr<Recorder> recorder(new Recorder(options, std::move(folder), std::move(kernel)));
  if (!options.system_wide.has_value()) return recorder;
  if (absl::Status status = recorder->StartSystemWide(); !status.ok()) {
    // A failed start must leave nothing in the kernel.
    if (!recorder->took_over()) recorder->End();
    return status;
  }
  return recorder;
}

Recorder::Recorder(const RecorderOptions& options, DumpFolder folder, Kernel kernel)
    : options_(options),
      pins_(std::move(kernel.pins)),
      hands_(options_.system_wide.has_value() ? worker::Hands(base::SubordinateIds::OfSystem())
                                              : worker::Hands({}, kHandsPatience)),
      books_(std::move(kernel.books)),
      mapping_events_(std::move(kernel.mapping_events)),
      errands_(worker::Urgency::kForeground,
               options_.system_wide.has_value() ? base::SubordinateIds::OfSystem() : base::SubordinateIds()),
      spaces_(options_.system_wide.has_value() ? AddressSpaces::Scope::kSystemWide
              : options_.follow                ? AddressSpaces::Scope::kKeptAndChildren
                                               : AddressSpaces::Scope::kKept),
      controls_(books_->processes(), hands_,
                {.is_system_wide = options_.system_wide.has_value(), .follow = options_.follow}),
      allocators_({.books = *books_,
                   .hands = hands_,
                   .errands = errands_,
                   .spaces = spaces_,
                   .pins = pins_.has_value() ? &*pins_ : nullptr},
                  {.is_system_wide = options_.system_wide.has_value(),
                   .follow = options_.follow,
                   .ids = options_.system_wide.has_value() ? base::SubordinateIds::OfSystem() : base::SubordinateIds(),
                   .on_read = [this](pid_t pid) { everyone_->LookAgain(pid); },
                   .on_attached = [this](const elf::Mapping& mapping) { everyone_->RecordMapping(mapping); }}),
      unwinding_({.maps = books_->unwind(),
                  .identify = books_->program(bpf::Program::kIdentify),
                  .hands = hands_,
                  .errands = errands_},
                 spaces_, options_.map_sizes.unwind_bytes,
                 [this](uint64_t process_id, uint32_t asked) { AnswerTables(process_id, asked); }),
      dumps_({.entries = books_->entries(), .mapping_events = *mapping_events_, .hands = hands_, .spaces = spaces_},
             options_, std::move(folder)),
      requests_({.books = *books_,
                 .errands = errands_,
                 .hands = hands_,
                 .targets = targets_,
                 .spaces = spaces_,
                 .controls = controls_,
                 .allocators = allocators_,
                 .unwinding = unwinding_,
                 .dumps = dumps_},
                options_.system_wide.has_value()),
      queries_({.books = *books_,
                .hands = hands_,
                .targets = targets_,
                .controls = controls_,
                .dumps = dumps_,
                .requests = requests_}),
      endings_({.books = *books_,
                .targets = targets_,
                .spaces = spaces_,
                .controls = controls_,
                .unwinding = unwinding_,
                .dumps = dumps_,
                .requests = requests_,
                .queries = queries_,
                .options = options_}) {}

absl::Status Recorder::StartSystemWide() {
  const SystemWide& system_wide = *options_.system_wide;
  everyone_.emplace(
      Everyone::Means{.books = *books_,
                      .mapping_events = *mapping_events_,
                      .hands = hands_,
                      .errands = errands_,
                      .targets = targets_,
                      .spaces = spaces_,
                      .controls = controls_,
                      .allocators = allocators_,
                      .unwinding = unwinding_,
                      .dumps = dumps_,
                      .requests = requests_,
                      .endings = endings_},
      options_,
      Everyone::Calls{.record_running = [this](pid_t pid) { return RecordRunning(pid); }, .pump = [this] { Pump(); }});
  if (absl::Status status = dumps_.StartPruning(system_wide.retention); !status.ok()) return status;
  if (!system_wide.pin_folder.empty()) {
    const std::string states_folder = absl::StrCat(system_wide.state_folder, "/recording");
    if (pins_.has_value()) DrainOtherLayouts(*pins_, states_folder, dumps_);
    absl::StatusOr<TargetStates> states = TargetStates::Open(states_folder, books_->layout(), books_->adopted());
    if (!states.ok()) return states.status();
    states_ = *std::move(states);
    endings_.UseStates(&*states_);
    everyone_->UseStates(&*states_);
  }
  if (absl::Status status = everyone_->SetDefaults(); !status.ok()) return status;
  if (books_->adopted()) everyone_->TakeOverBooks();
  for (const std::string& library : system_wide.libraries) {
    absl::StatusOr<bool> attached = AttachFile(library);
    if (!attached.ok()) return attached.status();
    if (!*attached) return absl::InvalidArgumentError(absl::StrCat(library, " contains no sampled allocator"));
  }
  everyone_->RecordRunningProcesses();
  allocators_.WaitForAll(kStartPatience);
  everyone_->InspectNewcomers();
  return absl::OkStatus();
}

absl::Status Recorder::RecordChild(pid_t pid) {
  spaces_.Keep(pid, {});
  absl::StatusOr<uint64_t> process_id = books_->processes().Track(pid, options_.follow, options_.policy.triggers);
  if (!process_id.ok()) return process_id.status();
  AddTarget(*process_id, pid);
  return absl::OkStatus();
}

absl::Status Recorder::RecordRunning(pid_t pid) {
  absl::StatusOr<base::FileDescriptor> pidfd = process::OpenPidfd(pid);
  if (!pidfd.ok()) return pidfd.status();
  absl::StatusOr<Inspection> inspection = allocators_.Inspect(pid);
  if (inspection.ok() && inspection->is_pending) {
    if (options_.system_wide.has_value()) return absl::OkStatus();  // continues in Everyone::LookAgain
    allocators_.WaitFor(pid);
    inspection = allocators_.Inspect(pid);
  }
  if (!inspection.ok()) return inspection.status();
  const absl::StatusOr<process::Facts> facts = hands_.Facts(pid);
  const std::string command = facts.ok() ? base::AsciiOnly(facts->command) : "?";
  const std::string name = absl::StrCat("process ", pid, " (", command, ")");
  if (inspection->files.empty()) {
    return absl::NotFoundError(
        absl::StrCat(name, " has no sampled allocator: start it with LD_PRELOAD=/path/to/libheaptap.so, then attach"));
  }
  absl::StatusOr<heaptap_control> control = absl::NotFoundError("none");
  if (inspection->control_address != 0) {
    control = hands_.Control(pid, {.address = inspection->control_address}, [] { return true; });
    if (!control.ok()) return control.status();
    if (const pid_t other = controls_.OtherCollector(*control); other != 0) {
      return absl::FailedPreconditionError(absl::StrCat(name, " is already recorded by another heaptap (process ",
                                                        other, "): if that is the daemon, use heaptap dump ", pid,
                                                        "; otherwise end it first"));
    }
  }

  for (const auto& [file, mapping] : inspection->all) unwinding_.tables().PrepareMapped(file, mapping);
  if (!options_.system_wide.has_value()) {
    errands_.WaitUntil([&] { return !unwinding_.tables().IsReading(); }, absl::Now() + kPatience);
  }
  absl::StatusOr<uint64_t> process_id = books_->processes().Track(pid, options_.follow, options_.policy.triggers);
  if (!process_id.ok()) return process_id.status();
  // If the process has ended, its PID may be reused, and nothing will remove the entry.
  if (process::HasEnded(pidfd->get())) {
    books_->processes().Untrack(pid);
    return absl::NotFoundError(absl::StrCat("process ", pid, " has ended"));
  }
  spaces_.Keep(pid, std::move(inspection->space));
  Target& target = AddTarget(*process_id, pid);
  target.started = true;
  target.name = command;
  if (everyone_.has_value()) everyone_->ApplyPolicy(target);
  if (!target.policy.record) {
    // Still attach: other processes may use its files too.
  } else if (control.ok()) {
    controls_.Use(target, *control, inspection->control_address);
    if (control->active == 0) {
      base::Say(absl::StrCat(name, " has prof.active off: nothing is recorded until the process switches it on"));
    }
  } else if (options_.policy.lg_sample.has_value()) {
    base::Say(absl::StrCat(name, " has no control block, so heaptap cannot set its rate: it samples at its own"));
  }
  absl::Status attached = allocators_.AttachAll(inspection->files, pid);
  if (!attached.ok()) Abandon();
  return attached;
}

void Recorder::CopyAllocatorFacts(const Target& from, Target& to) {
  to.control_address = from.control_address;
  to.allocator = from.allocator;
  to.policy = from.policy;
  to.own_lg_sample = from.own_lg_sample;
  to.max_frames = from.max_frames;
  to.raw = from.raw;
}

std::vector<int> Recorder::fds() const {
  return {books_->events_fd(), books_->unwind().raw_stacks_fd(), errands_.fd()};
}

void Recorder::Pump() {
  const absl::Time now = absl::Now();
  pumped_ = now;
  queries_.ForgetSummaries(now);
  errands_.HandleDone();
  unwinding_.BeginBatch();
  // One Pump after they were closed: at a reset, an eBPF program may have been in the middle of an entry.
  endings_.ForgetClosed();
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
    if (event.kind == HEAPTAP_EVENT_TABLE_WANTED) unwinding_.HandleTableWanted(event, mappings);
    if (event.kind < std::size(kEventNames) && kEventNames[event.kind] != nullptr) {
      events_counted_[kEventNames[event.kind]]++;
    }
  }
  std::set<pid_t> changed;
  for (const bpf::MappingEvent& event : news) {
    if (event.kind == bpf::MappingEvent::kMap) changed.insert(event.pid);
  }
  for (const pid_t pid : changed) books_->unwind().InvalidateRules(pid);
  const std::set<ptrdiff_t> comes_again = FindRepeated(*events);
  auto mapping = mappings.begin();
  auto raw_stack = raw_stacks.begin();
  const auto handle_until = [&](uint64_t time) {
    for (; raw_stack != raw_stacks.end() && raw_stack->header.time <= time; ++raw_stack) {
      for (; mapping != mappings.end() && mapping->time <= raw_stack->header.time; ++mapping) HandleMapping(*mapping);
      FinishRawStack(std::move(*raw_stack));
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
  endings_.FindUnnoticed();
  if (everyone_.has_value()) everyone_->InspectNewcomers();
  endings_.CloseEnded(now);
  unwinding_.tables().Balance(now);
  requests_.HandlePostponed();
}

void Recorder::Handle(const heaptap_event& event) {
  Target* target = targets_.Find(event.process_id);
  if (event.kind == HEAPTAP_EVENT_LIVE_FILLING) {
    if (absl::Status status = books_->Sweep(); !status.ok()) Fail(status);
    return;
  }
  if (event.kind == HEAPTAP_EVENT_TABLE_WANTED) return;  // already handled in Pump
  const bool begins =
      event.kind == HEAPTAP_EVENT_FORK || event.kind == HEAPTAP_EVENT_EXEC || event.kind == HEAPTAP_EVENT_ENTER;
  if (begins && IsOver(event)) return;
  if (event.kind == HEAPTAP_EVENT_FORK) {
    Target& child = AddTarget(event.process_id, event.tgid);
    child.name = CommOf(event);
    if (const Target* parent = targets_.Find(event.argument); parent != nullptr) {
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
    if (const Target* before = targets_.Find(event.argument); before != nullptr) next.policy = before->policy;
    spaces_.Hold(event.tgid);
    if (!options_.follow) {
      base::Say(absl::StrCat("process ", event.tgid, " now runs another program (exec); its profile starts over"));
    }
    // After a vfork (argument 0) the books are the parent's and stay open.
    if (event.argument != 0) endings_.Close(event.argument);
    return;
  }
  if (event.kind == HEAPTAP_EVENT_RESET) return HandleReset(event);
  if (event.kind == HEAPTAP_EVENT_ENTER && everyone_.has_value()) return everyone_->HandleEnter(event);
  if (event.kind == HEAPTAP_EVENT_EXIT) {
    if (event.process_id == 0) return spaces_.Drop(event.tgid);
    // The target is unknown if its beginning was missed, if another recorder saw it, or if it is already closed.
    if (target == nullptr) {
      if (endings_.IsClosed(event.process_id) || !books_->processes().IsUnnoticed(event.process_id)) return;
      target = &AddTarget(event.process_id, event.tgid);
    }
    return endings_.Handle(*target, {.status = static_cast<int>(static_cast<uint32_t>(event.argument)),
                                     .by_oom_kill = (event.argument & HEAPTAP_EXIT_BY_OOM_KILL) != 0,
                                     .peak = event.peak_weight,
                                     .time = absl::Now(),
                                     .space = nullptr});
  }
  if (target == nullptr) {
    if (event.kind == HEAPTAP_EVENT_DUMP) requests_.RefuseDump(event);
    return;
  }
  target->name = CommOf(event);
  switch (event.kind) {
    case HEAPTAP_EVENT_START:
      return HandleStart(*target, event);
    case HEAPTAP_EVENT_DUMP:
      return requests_.HandleDump(*target, event);
    case HEAPTAP_EVENT_HIGH_WATER:
      return requests_.HandleTrigger(*target, HEAPTAP_DUMP_HIGH_WATER);
    case HEAPTAP_EVENT_INTERVAL:
      return requests_.HandleTrigger(*target, HEAPTAP_DUMP_INTERVAL);
  }
}

void Recorder::HandleStart(Target& target, const heaptap_event& event) {
  heaptap_control control;
  memcpy(&control, event.memory, sizeof(control));
  target.started = true;
  target.is_saved = false;
  if (options_.system_wide.has_value()) {
    everyone_->ForgetNewcomer(target.pid);
    everyone_->ApplyPolicy(target);
    // The process began before mappings were watched.
    if (!spaces_.Hold(target.pid)) everyone_->Inspect(target);
  }
  if (absl::Status status = process::CheckControl(control, target.pid); !status.ok()) {
    if (!std::exchange(target.control_refused, true)) {
      base::Say(absl::StrCat(status.message(), "; its stacks are shown with the allocator's frames"));
    }
    return;
  }
  if (target.policy.record) controls_.Use(target, control, event.argument);
}

void Recorder::HandleMapping(const bpf::MappingEvent& event) {
  if (!spaces_.Apply(event)) return;
  if (event.mapping.inode == 0) return;
  // Only recorded processes need unwind tables, but any process may map an allocator.
  if (spaces_.IsHeld(event.pid)) {
    unwinding_.HandleMapping(event);
    if (Target* target = targets_.FindRunning(event.pid); target != nullptr) target->is_saved = false;
  }
  allocators_.Look(event);
}

void Recorder::ReadAhead(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (const absl::StatusOr<SeenFile> file = OpenOwn(*books_, path); file.ok()) unwinding_.tables().ReadAhead(*file);
  }
}

absl::StatusOr<bool> Recorder::AttachFile(const std::string& path) {
  const absl::StatusOr<SeenFile> file = OpenOwn(*books_, path);
  if (!file.ok()) return file.status();
  unwinding_.tables().Prepare(*file);
  return allocators_.AttachFile(*file);
}

void Recorder::AnswerTables(uint64_t process_id, uint32_t asked) {
  Target* const target = targets_.Find(process_id);
  if (target == nullptr || target->control_address == 0 || target->foreign) return;
  // Fails if the process has ended; then it no longer waits.
  controls_.Order(*target, worker::ControlVerb::kTablesReady, asked).status().IgnoreError();
}

void Recorder::FinishRawStack(bpf::RawStack raw) {
  const Target* target = targets_.Find(raw.header.process_id);
  if (target == nullptr) return;
  std::shared_ptr<const AddressSpace> space =
      target->ending.has_value() ? target->ending->space : spaces_.Share(target->pid);
  if (space != nullptr) unwinding_.HandleRawStack(std::move(raw), target->pid, std::move(space));
}

bool Recorder::IsOver(const heaptap_event& event) {
  return targets_.Find(event.process_id) == nullptr &&
         !books_->processes().IsCurrent(static_cast<pid_t>(event.tgid), event.process_id) &&
         !books_->processes().IsUnnoticed(event.process_id);
}

void Recorder::HandleReset(const heaptap_event& event) {
  const heaptap_dump_request asked = process::RequestOf(event);
  const bool is_known = targets_.Find(event.argument) != nullptr;
  if (!is_known && IsOver(event)) return endings_.Close(event.argument);
  Target& target =
      is_known ? endings_.Replace(event.argument, event.process_id) : AddTarget(event.process_id, event.tgid);
  if (!is_known) endings_.Close(event.argument);
  target.own_lg_sample = static_cast<uint32_t>(std::min<uint64_t>(asked.argument, HEAPTAP_MAX_LG_SAMPLE));
}

void Recorder::DumpAll(heaptap_dump_kind kind) {
  for (auto& [process_id, target] : targets_) {
    if (!target.ending.has_value() && dumps_.HasProfile(target)) dumps_.Write(target, kind).IgnoreError();
  }
}

void Recorder::End() {
  books_->processes().SetSettings({}).IgnoreError();
  if (everyone_.has_value()) everyone_->InspectAll();
  Abandon();
  if (pins_.has_value()) pins_->RemoveAll();
  if (states_.has_value()) states_->RemoveAll();
}

void Recorder::Abandon() {
  for (auto& [process_id, target] : targets_) {
    if (target.ending.has_value()) continue;
    // Fails if the process has ended; then there is nothing to restore.
    if (target.control_address != 0) {
      controls_.Order(target, worker::ControlVerb::kRelease).status().IgnoreError();
    }
    books_->processes().Untrack(target.pid);
  }
  allocators_.Detach();
}

void Recorder::Finish() {
  Pump();
  Abandon();
  Pump();  // samples arrive until the probes are removed
  const auto is_settled = [this] {
    unwinding_.HandleTablesRead();
    return !unwinding_.HasWaitingStacks();
  };
  errands_.WaitUntil(is_settled, absl::Now() + kTablesPatience);
  std::vector<const Target*> dumped;
  for (auto& [process_id, target] : targets_) {
    if (requests_.answers().WaitFor(process_id) != 0) failed_ = true;
    if (!dumps_.HasProfile(target)) continue;
    dumps_.Write(target, HEAPTAP_DUMP_FINAL).IgnoreError();
    dumped.push_back(&target);
  }
  if (options_.show_books) dumps_.SayBooks(std::move(dumped));
  targets_.clear();
}

void Recorder::Fail(const absl::Status& status) {
  failed_ = true;
  base::Say(status.message());
}

}  // namespace heaptap::recording
