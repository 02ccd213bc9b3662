// SPDX-License-Identifier: Apache-2.0
#include "userspace/recording/recorder.h"

#include <poll.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/messages.h"
#include "userspace/base/subordinate_ids.h"
#include "userspace/bpf/kernel_books.h"
#include "userspace/bpf/perf_mapping_events.h"
#include "userspace/dumps/other_layouts.h"
#include "userspace/elf/mappings.h"
#include "userspace/process/facts.h"
#include "userspace/process/handle.h"
#include "userspace/process/preload.h"

namespace heaptap::recording {
namespace {

// The longest wait for unwind tables at the end of a recording.
constexpr absl::Duration kTablesPatience = absl::Seconds(20);

// The bounds of looks at processes whose user is the one who waits.
constexpr worker::Hands::Bounds kOwnHands = {.patience = absl::Seconds(10)};

// The longest wait at the end of a recording for control blocks that are being released.
constexpr absl::Duration kReleasePatience = absl::Seconds(10);

// The most orders of one user that wait: one for each process that can be recorded, as after the start of a collector.
constexpr size_t kMaxOrdersWaiting = HEAPTAP_DEFAULT_PROCESSES;

// The longest wait for the unwind tables of a process that a command attaches to.
constexpr absl::Duration kMappedTablesPatience = absl::Seconds(60);

// The longest wait at the end of a system-wide recording for dumps that are being written.
constexpr absl::Duration kBackgroundPatience = absl::Seconds(10);

absl::StatusOr<DumpFolder> OpenFolder(const RecorderOptions& options) {
  if (!options.system_wide.has_value()) return DumpFolder::Open(options.prefix);
  return DumpFolder::Open(absl::StrCat(options.system_wide->state_folder, "/heaptap"), "--state-dir");
}

absl::StatusOr<process::ControlGroups> OpenGroups(const RecorderOptions& options) {
  if (!options.system_wide.has_value() || options.system_wide->shall_end) return process::ControlGroups();
  return process::ControlGroups::Open(options.system_wide->groups, HEAPTAP_MAX_GROUPS);
}

// A recording of given processes belongs to one user.
base::SubordinateIds IdsFor(const RecorderOptions& options) {
  return options.system_wide.has_value() ? base::SubordinateIds::OfSystem() : base::SubordinateIds();
}

// Whether long work is done in other threads while the recording goes on.
bool HasOwnThreads(const RecorderOptions& options) {
  return options.system_wide.has_value() && options.background == base::Background::Place::kOwnThread;
}

std::string NameOf(pid_t pid, const Inspection& inspection) {
  return absl::StrCat("process ", pid, " (", base::AsciiOnly(inspection.facts.command), ")");
}

uint32_t FollowBits(const RecorderOptions& options) {
  return (options.follow ? HEAPTAP_COLLECTOR_FOLLOWS : 0) | (options.counts ? HEAPTAP_COLLECTOR_GIVES_AREAS : 0);
}

AddressSpaces::Scope ScopeFor(const RecorderOptions& options) {
  if (options.system_wide.has_value()) return AddressSpaces::Scope::kSystemWide;
  return options.follow ? AddressSpaces::Scope::kKeptAndChildren : AddressSpaces::Scope::kKept;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Recorder>> Recorder::Start(const RecorderOptions& options) {
  absl::StatusOr<DumpFolder> folder = OpenFolder(options);
  if (!folder.ok()) return folder.status();
  absl::StatusOr<process::ControlGroups> groups = OpenGroups(options);
  if (!groups.ok()) return groups.status();
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
  absl::StatusOr<std::unique_ptr<bpf::MappingEvents>> mapping_events = bpf::PerfMappingEvents::Start(groups->fds());
  if (!mapping_events.ok()) {
    // A failed start must leave nothing in the kernel.
    if (pins.has_value() && !(*books)->adopted()) pins->RemoveAll();
    return mapping_events.status();
  }
  return Begin(options, *std::move(folder),
               {.pins = std::move(pins),
                .books = *std::move(books),
                .mapping_events = *std::move(mapping_events),
                .groups = *std::move(groups)});
}

absl::StatusOr<std::unique_ptr<Recorder>> Recorder::Start(const RecorderOptions& options, Kernel kernel) {
  absl::StatusOr<DumpFolder> folder = OpenFolder(options);
  if (!folder.ok()) return folder.status();
  return Begin(options, *std::move(folder), std::move(kernel));
}

absl::StatusOr<std::unique_ptr<Recorder>> Recorder::Begin(const RecorderOptions& options, DumpFolder folder,
                                                          Kernel kernel) {
  std::unique_ptr<Recorder> recorder(new Recorder(options, std::move(folder), std::move(kernel)));
  if (absl::Status status = recorder->gifts_.Prepare(); !status.ok()) return status;
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
      books_(std::move(kernel.books)),
      mapping_events_(std::move(kernel.mapping_events)),
      groups_(std::move(kernel.groups)),
      errands_(worker::Urgency::kForeground, IdsFor(options_)),
      looks_(books_->program(bpf::Program::kIdentify), IdsFor(options_),
             options_.system_wide.has_value() ? options_.hands : kOwnHands),
      orders_(books_->program(bpf::Program::kIdentify), IdsFor(options_),
              options_.system_wide.has_value() ? options_.hands : kOwnHands, kMaxOrdersWaiting,
              HasOwnThreads(options_) ? worker::Looks::Place::kOwnThreads : worker::Looks::Place::kCaller),
      spaces_(ScopeFor(options_)),
      controls_({.processes = books_->processes(), .orders = orders_, .targets = targets_},
                {.is_system_wide = options_.system_wide.has_value(), .follow = FollowBits(options_)}),
      gifts_(*books_, orders_, options_.counts),
      readings_({.processes = books_->processes(), .orders = orders_, .targets = targets_},
                [this](Target& target, const process::Facts* facts) {
                  if (everyone_.has_value()) everyone_->HandleRead(target, facts);
                }),
      allocators_({.books = *books_,
                   .looks = looks_,
                   .errands = errands_,
                   .spaces = spaces_,
                   .pins = pins_.has_value() ? &*pins_ : nullptr},
                  {.is_system_wide = options_.system_wide.has_value(),
                   .follow = options_.follow,
                   .only_kept = options_.system_wide.has_value() && options_.system_wide->only_libraries,
                   .looks_for_new = !options_.system_wide.has_value() || !options_.system_wide->shall_end,
                   .ids = IdsFor(options_),
                   .look_again = [this](pid_t pid) { everyone_->LookAgain(pid); },
                   .on_attached =
                       [this](const elf::Mapping& mapping) {
                         everyone_.has_value() ? everyone_->RecordMapping(mapping) : TakeLate(mapping);
                       }}),
      unwinding_({.maps = books_->unwind(),
                  .identify = books_->program(bpf::Program::kIdentify),
                  .looks = looks_,
                  .orders = orders_,
                  .errands = errands_,
                  .ids = IdsFor(options_)},
                 spaces_, options_.map_sizes.unwind_bytes,
                 [this](uint64_t process_id, uint32_t asked) {
                   if (Target* target = targets_.Find(process_id); target != nullptr) {
                     controls_.AnswerTables(*target, asked);
                   }
                 }),
      dumps_({.entries = books_->entries(),
              .mapping_events = *mapping_events_,
              .processes = books_->processes(),
              .orders = orders_,
              .spaces = spaces_,
              .targets = targets_,
              .unwinding = unwinding_,
              .background = threads_.profiles},
             options_, std::move(folder)),
      requests_({.books = *books_,
                 .errands = errands_,
                 .targets = targets_,
                 .spaces = spaces_,
                 .controls = controls_,
                 .gifts = gifts_,
                 .allocators = allocators_,
                 .unwinding = unwinding_,
                 .dumps = dumps_},
                options_.system_wide.has_value()),
      queries_({.books = *books_,
                .orders = orders_,
                .targets = targets_,
                .controls = controls_,
                .readings = readings_,
                .dumps = dumps_,
                .requests = requests_}),
      surveys_({.books = *books_, .orders = orders_, .targets = targets_, .dumps = dumps_}),
      endings_({.books = *books_,
                .targets = targets_,
                .spaces = spaces_,
                .unwinding = unwinding_,
                .dumps = dumps_,
                .requests = requests_,
                .queries = queries_,
                .background = threads_.endings,
                .cleaning = threads_.cleaning,
                .options = options_}),
      loop_({.books = *books_,
             .mapping_events = *mapping_events_,
             .errands = errands_,
             .looks = looks_,
             .orders = orders_,
             .targets = targets_,
             .spaces = spaces_,
             .controls = controls_,
             .allocators = allocators_,
             .unwinding = unwinding_,
             .requests = requests_,
             .endings = endings_,
             .threads = threads_,
             .options = options_}),
      threads_(HasOwnThreads(options_) ? base::Background::Place::kOwnThread : base::Background::Place::kCaller) {}

absl::Status Recorder::StartSystemWide() {
  const SystemWide& system_wide = *options_.system_wide;
  everyone_.emplace(
      Everyone::Means{.books = *books_,
                      .mapping_events = *mapping_events_,
                      .groups = groups_,
                      .looks = looks_,
                      .orders = orders_,
                      .errands = errands_,
                      .targets = targets_,
                      .spaces = spaces_,
                      .controls = controls_,
                      .readings = readings_,
                      .allocators = allocators_,
                      .unwinding = unwinding_,
                      .dumps = dumps_,
                      .requests = requests_,
                      .queries = queries_,
                      .endings = endings_,
                      .background = threads_.profiles},
      options_,
      Everyone::Calls{.record_running = [this](pid_t pid, Done done) { RecordLater(pid, std::move(done)); },
                      .pump = [this] { loop_.Pump(); }});
  loop_.Use(*everyone_);
  if (absl::Status status = dumps_.StartPruning(system_wide.retention); !status.ok()) return status;
  if (absl::Status status = endings_.KeepEndedIn(absl::StrCat(system_wide.state_folder, "/ended"), threads_.files);
      !status.ok()) {
    return status;
  }
  if (!system_wide.pin_folder.empty()) {
    const std::string states_folder = absl::StrCat(system_wide.state_folder, "/recording");
    if (pins_.has_value()) DrainOtherLayouts(*pins_, states_folder, dumps_);
    absl::StatusOr<TargetStates> states =
        TargetStates::Open(states_folder, books_->layout(), books_->adopted(), threads_.files);
    if (!states.ok()) return states.status();
    states_ = *std::move(states);
    endings_.UseStates(&*states_);
    everyone_->UseStates(&*states_);
  }
  // A recorder that only ends a recording records no new process, and attaches to no file.
  if (!system_wide.shall_end) {
    if (absl::Status status = everyone_->Restrict(); !status.ok()) return status;
    everyone_->TellRate();
    if (absl::Status status = AttachLibraries(system_wide); !status.ok()) return status;
  }
  if (books_->adopted()) everyone_->TakeOverBooks();
  if (!system_wide.shall_end) everyone_->RecordRunningProcesses();
  everyone_->InspectFirst();
  return absl::OkStatus();
}

absl::Status Recorder::RecordChild(pid_t pid) {
  spaces_.Keep(pid, {});
  absl::StatusOr<uint64_t> process_id = books_->processes().Track(pid, options_.follow, options_.policy.triggers);
  if (!process_id.ok()) return process_id.status();
  targets_.Add(*process_id, pid, options_.policy);
  return absl::OkStatus();
}

absl::Status Recorder::RecordRunning(pid_t pid) {
  absl::StatusOr<base::FileDescriptor> pidfd = process::OpenPidfd(pid);
  if (!pidfd.ok()) return pidfd.status();
  absl::StatusOr<Inspection> inspection = allocators_.InspectNow(pid);
  if (inspection.ok() && inspection->is_pending) {
    allocators_.WaitFor(pid);
    inspection = allocators_.InspectNow(pid);
  }
  if (!inspection.ok()) return inspection.status();
  // Hands work in this thread, unless the recording is system-wide.
  absl::Status recorded = absl::UnavailableError(absl::StrCat("process ", pid, " was not looked at"));
  Record(pid, std::make_shared<const base::FileDescriptor>(*std::move(pidfd)), *std::move(inspection),
         [&recorded](const absl::Status& status) { recorded = status; });
  return recorded;
}

void Recorder::RecordLater(pid_t pid, Done done) {
  absl::StatusOr<base::FileDescriptor> opened = process::OpenPidfd(pid);
  if (!opened.ok()) return done(opened.status());
  const auto pidfd = std::make_shared<const base::FileDescriptor>(*std::move(opened));
  allocators_.Inspect(pid, [this, pid, pidfd, done = std::move(done)](absl::StatusOr<Inspection> inspection) {
    if (!inspection.ok()) return done(inspection.status());
    if (inspection->is_pending) return done(absl::OkStatus());
    Record(pid, pidfd, *std::move(inspection), done);
  });
}

void Recorder::Record(pid_t pid, std::shared_ptr<const base::FileDescriptor> pidfd, Inspection inspection, Done done) {
  if (!groups_.empty() && !groups_.Contain(inspection.facts.unified_group)) {
    return done(absl::NotFoundError(absl::StrCat("process ", pid, " is in none of the recording's control groups")));
  }
  const std::string name = NameOf(pid, inspection);
  if (inspection.files.empty()) {
    return done(absl::NotFoundError(absl::StrCat(
        name, " has no sampled allocator: start it with LD_PRELOAD=", process::PathToShow(process::Library::kAllocator),
        ", then attach (heaptap doctor -p ", pid, " shows the command)")));
  }
  const auto looked_at = std::make_shared<Inspection>(std::move(inspection));
  const auto record = [this, pid, pidfd = std::move(pidfd), looked_at,
                       done](const std::optional<Controls::Found>& control) {
    // The process may have entered meanwhile.
    const bool has_entered = everyone_.has_value() && targets_.FindRunning(pid) != nullptr;
    if (has_entered) everyone_->LookAgain(pid);
    done(has_entered ? absl::OkStatus() : RecordWith(pid, pidfd->get(), std::move(*looked_at), control));
  };
  if (looked_at->control_addresses.empty()) return record({});
  controls_.Find(
      pid, looked_at->control_addresses, [] { return true; },
      [this, pid, name, record, done = std::move(done)](const absl::StatusOr<Controls::Found>& found) {
        if (!found.ok()) return done(found.status());
        controls_.FindCollector(found->control, [=, control = *found](const auto& other) {
          if (other == nullptr) return record(control);
          done(absl::FailedPreconditionError(absl::StrCat(name, " is already recorded by another heaptap (process ",
                                                          other->pid, "): if that is the daemon, use heaptap dump ",
                                                          pid, "; otherwise end it first")));
        });
      });
}

absl::Status Recorder::RecordWith(pid_t pid, int pidfd, Inspection inspection,
                                  const std::optional<Controls::Found>& found) {
  const std::string name = NameOf(pid, inspection);
  for (const auto& [file, mapping] : inspection.all) unwinding_.tables().PrepareMapped(file, mapping);
  if (!options_.system_wide.has_value()) {
    errands_.WaitUntil([&] { return !unwinding_.tables().IsReading(); }, base::Now() + kMappedTablesPatience);
    while (unwinding_.tables().kernel().IsLoading()) unwinding_.tables().kernel().LoadSome();
  }
  absl::StatusOr<uint64_t> process_id = books_->processes().Track(pid, options_.follow, options_.policy.triggers);
  if (!process_id.ok()) return process_id.status();
  // If the process has ended, its PID may be reused, and nothing will remove the entry.
  if (process::HasEnded(pidfd)) {
    books_->processes().Untrack(pid);
    return absl::NotFoundError(absl::StrCat("process ", pid, " has ended"));
  }
  const bool was_unknown = spaces_.Find(pid) == nullptr;
  spaces_.Keep(pid, std::move(inspection.space));
  // Mappings that the process has made since the look were missed.
  if (was_unknown && everyone_.has_value()) everyone_->LookAgain(pid);
  Target& target = targets_.Add(*process_id, pid, options_.policy);
  Controls::NoteStarted(target);
  target.name = base::AsciiOnly(inspection.facts.command);
  if (everyone_.has_value()) everyone_->SetPolicy(target, inspection.facts);
  if (!target.policy->record) {
    // Still attach: other processes may use its files too.
  } else if (found.has_value()) {
    controls_.TakeFound(target, found->control, found->address);
    if (found->control.active == 0) {
      base::Say(absl::StrCat(name, " has prof.active off: nothing is recorded until the process switches it on"));
    }
  } else if (options_.policy.lg_sample.has_value()) {
    base::Say(absl::StrCat(name, " has no control block, so heaptap cannot set its rate: it samples at its own"));
  }
  absl::Status attached = allocators_.AttachAll(inspection.files, pid);
  if (!attached.ok()) Abandon();
  return attached;
}

void Recorder::TakeLate(const elf::Mapping& file) {
  for (const pid_t pid : spaces_.ProcessesMapping(file)) {
    Target* const target = targets_.FindRunning(pid);
    if (target == nullptr || target->image->has_started) continue;
    allocators_.Inspect(pid, [this, id = target->process_id](const absl::StatusOr<Inspection>& inspection) {
      Target* const now = targets_.Find(id);
      if (now == nullptr || now->image->has_started || !inspection.ok() || inspection->control_addresses.empty())
        return;
      controls_.FindAndTake(*now, inspection->control_addresses, [](const absl::Status&) {});
    });
  }
}

void Recorder::ReadAhead(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (const absl::StatusOr<SeenFile> file = OpenOwn(*books_, path); file.ok()) unwinding_.tables().ReadAhead(*file);
  }
}

absl::Status Recorder::AttachLibraries(const SystemWide& system_wide) {
  for (const std::string& library : system_wide.libraries) {
    const absl::StatusOr<bool> attached = AttachFile(library);
    if (!attached.ok()) return attached.status();
    if (!*attached) return absl::InvalidArgumentError(absl::StrCat(library, " contains no sampled allocator"));
  }
  for (const std::string& library : system_wide.preloaded) {
    const absl::Status status = AttachFile(library).status();
    if (!status.ok() && !absl::IsNotFound(status)) {
      base::Say(absl::StrCat(status.message(), "; the daemon attaches to it when a process maps it"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Recorder::AttachFile(const std::string& path) {
  const absl::StatusOr<SeenFile> file = OpenOwn(*books_, path);
  if (!file.ok()) return file.status();
  unwinding_.tables().Prepare(*file);
  return allocators_.AttachFile(*file);
}

bool Recorder::HasMore() const {
  return endings_.HasMore() || unwinding_.tables().kernel().IsLoading() ||
         (everyone_.has_value() && everyone_->IsFolding());
}

bool Recorder::IsSettled() const {
  return (!everyone_.has_value() || everyone_->IsSettled()) && unwinding_.IsSettled() && !requests_.HasPostponed() &&
         endings_.IsSettled() && errands_.IsIdle() && looks_.IsIdle() && orders_.IsIdle() && threads_.IsIdle();
}

void Recorder::DumpAll(heaptap_dump_kind kind) {
  for (auto& [process_id, target] : targets_) {
    if (!target.ending.has_value() && dumps_.HasProfile(target)) dumps_.Write(target, kind);
  }
}

void Recorder::FinishBackground() {
  const base::Instant end = base::Now() + kBackgroundPatience;
  while ((dumps_.IsMaking() || !threads_.IsIdle()) && base::Now() < end) {
    std::vector<pollfd> done = {{.fd = orders_.fd(), .events = POLLIN, .revents = 0}};
    for (const int fd : threads_.fds()) done.push_back({.fd = fd, .events = POLLIN, .revents = 0});
    base::PollUntil(absl::MakeSpan(done), std::min(end, base::Now() + kPumpInterval));
    Pump();
  }
}

void Recorder::Leave() {
  if (everyone_.has_value()) everyone_->SaveAllStates();
}

void Recorder::End() {
  books_->processes().SetSettings({}).IgnoreError();
  if (everyone_.has_value()) everyone_->InspectAll();
  Abandon();
  if (pins_.has_value()) pins_->RemoveAll();
  if (states_.has_value()) {
    threads_.files.WaitUntilIdle(base::Now() + kBackgroundPatience);
    states_->RemoveAll();
  }
}

void Recorder::Abandon() {
  for (auto& [process_id, target] : targets_) {
    if (!target.ending.has_value()) controls_.Release(target);
  }
  orders_.WaitUntil([this] { return orders_.IsIdle(); }, base::Now() + kReleasePatience);
  for (const auto& [process_id, target] : targets_) {
    if (!target.ending.has_value()) books_->processes().Untrack(target.pid);
  }
  allocators_.Detach();
}

std::vector<Recorder::Survivor> Recorder::Finish() {
  loop_.Pump();
  Abandon();
  loop_.Pump();  // samples arrive until the probes are removed
  const auto is_settled = [this] {
    looks_.HandleDone();
    orders_.HandleDone();
    unwinding_.HandleTablesRead();
    return !unwinding_.HasWaitingStacks();
  };
  errands_.WaitUntil(is_settled, base::Now() + kTablesPatience);
  std::vector<const Target*> dumped;
  std::vector<Survivor> survivors;
  for (auto& [process_id, target] : targets_) {
    if (requests_.answers().WaitFor(process_id) != 0) failed_ = true;
    if (!dumps_.HasProfile(target)) continue;
    dumps_.Write(target, HEAPTAP_DUMP_FINAL);
    dumped.push_back(&target);
    if (!target.ending.has_value()) survivors.push_back({.pid = target.pid, .name = target.name});
  }
  if (options_.show_books) dumps_.SayBooks(std::move(dumped));
  targets_.clear();
  return survivors;
}

}  // namespace heaptap::recording
