// SPDX-License-Identifier: Apache-2.0
//
// The recording of everyone: how it begins, what it takes over, who comes into it, and what is done each second.
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/bpf/other_layout.h"
#include "userspace/elf/mappings.h"
#include "userspace/service/budget.h"
#include "userspace/service/control_block.h"
#include "userspace/service/messages.h"
#include "userspace/service/recorder.h"

namespace heaptap::service {
namespace {

// Shorter-lived processes leave nothing in writing: most of them are over before anybody could need it.
constexpr absl::Duration kSaveAfter = absl::Seconds(1);

// Where tallies of threads that have ended are folded: a share of the map, or of a process's bound.
constexpr double kFoldAt = 0.5;

std::vector<pid_t> AllProcesses() {
  std::vector<pid_t> pids;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    pid_t pid = 0;
    if (absl::SimpleAtoi(entry.path().filename().string(), &pid) && pid > 0 && pid != getpid()) pids.push_back(pid);
  }
  return pids;
}

// Of a moment on CLOCK_MONOTONIC, nanoseconds.
absl::Time TimeOf(uint64_t monotonic) {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::Now() - (absl::DurationFromTimespec(now) - absl::Nanoseconds(monotonic));
}

bool ThreadLives(pid_t pid, uint32_t tid) {
  return access(absl::StrCat("/proc/", pid, "/task/", tid).c_str(), F_OK) == 0;
}

}  // namespace

absl::Status Recorder::StartEveryone() {
  const Everyone& everyone = *options_.everyone;
  elf::FileDescriptor folder(folder_.Duplicate());
  if (!folder.valid()) return absl::UnavailableError(absl::StrCat(everyone.state_folder, ": ", strerror(errno)));
  pruner_.emplace(std::move(folder), everyone.retention);
  if (pins_.has_value()) {
    const std::string states_folder = absl::StrCat(everyone.state_folder, "/recording");
    DrainOtherLayouts(states_folder);
    absl::StatusOr<TargetStates> states = TargetStates::Open(states_folder, bpf::Books::Layout(), books_->adopted());
    if (!states.ok()) return states.status();
    states_ = *std::move(states);
  }
  if (absl::Status status = SetDefaults(); !status.ok()) return status;
  if (books_->adopted()) TakeOverBooks();
  for (const std::string& library : everyone.libraries) {
    absl::StatusOr<bool> attached = AttachFile(library);
    if (!attached.ok()) return attached.status();
    if (!*attached) return absl::InvalidArgumentError(absl::StrCat(library, " has no sampled allocator in it"));
  }
  RecordRunningProcesses();
  return absl::OkStatus();
}

// What processes have until their start has been read, and the rules looked at.
absl::Status Recorder::SetDefaults() {
  const Policy& policy = options_.policy;
  return books_->SetSettings({.everyone = 1,
                              .flags = HEAPTAP_PROCESS_FOLLOW | HEAPTAP_PROCESS_FIGURES | HEAPTAP_PROCESS_ENTERED,
                              .max_live = policy.max_live,
                              .max_tallies = policy.max_contexts,
                              .first_high_water = policy.triggers.first_high_water,
                              .interval_step = policy.triggers.interval,
                              .high_water_percent = policy.triggers.high_water_percent,
                              .lg_sample = policy.lg_sample.value_or(HEAPTAP_NO_RATE),
                              .collector_pid = static_cast<uint32_t>(getpid()),
                              .reserved = 0,
                              .live_room = 0,
                              .tallies_room = 0});
}

void Recorder::DrainOtherLayouts(const std::string& states_folder) {
  for (const std::string& layout : pins_->OtherLayouts()) {
    const bpf::Pins other = pins_->Other(layout);
    if (absl::Status status = bpf::StopOtherLayout(other); !status.ok()) Say(status.message());
    const absl::StatusOr<bpf::OtherBooks> books = bpf::ReadOtherLayout(other);
    if (!books.ok()) {
      Say(absl::StrCat("the recording of another version (", layout,
                       ") cannot be read and is given up: ", books.status().message()));
      other.RemoveAll();
      continue;
    }
    const TargetStates states = TargetStates::OfOther(states_folder, layout);
    for (const auto& [process_id, entries] : books->tallies) {
      const auto process =
          std::find_if(books->processes.begin(), books->processes.end(),
                       [id = process_id](const bpf::OtherProcess& one) { return one.process_id == id; });
      Target target;
      target.process_id = process_id;
      if (process != books->processes.end()) target.pid = process->tgid;
      Ending ending;
      if (absl::StatusOr<TargetState> state = states.Load(process_id); state.ok()) {
        target = std::move(state->target);
        ending.space = std::make_shared<AddressSpace>(std::move(state->space));
      }
      target.ending = std::move(ending);
      Write(target, HEAPTAP_DUMP_FINAL, BuildOtherProfile(*books, Subject(target))).IgnoreError();
    }
    other.RemoveAll();
    Say(absl::StrCat("a recording of another version (", layout, ") was ended with a last dump of each of its ",
                     books->tallies.size(), " processes; a new one begins"));
  }
}

void Recorder::TakeOverBooks() {
  tables_.StartFrom(books_->unwind().Clear());
  tables_.EnterVdso();
  absl::StatusOr<std::map<uint64_t, bpf::RecordedProcess>> processes = books_->ReadProcesses();
  if (!processes.ok()) return Fail(processes.status());
  for (const auto& [process_id, recorded] : *processes) {
    if ((recorded.process.flags & HEAPTAP_PROCESS_IGNORED) != 0) continue;
    Target& target = AddTarget(process_id, recorded.tgid);
    target.name = ProcessName(recorded.tgid);
    target.since = TimeOf(recorded.process.start_time);
    if (absl::StatusOr<TargetState> state = states_->Load(process_id); state.ok()) {
      const Policy policy = target.policy;
      target = std::move(state->target);
      target.policy = policy;
      target.is_saved = true;
    }
    Introduce(target);
    if (target.started) ApplyPolicy(target);
  }
  Pump();
  FinishOrphans();
  Say(absl::StrCat("took over a recording of ", targets_.size(), targets_.size() == 1 ? " process" : " processes"));
  if (!books_->HasSizes(options_.map_sizes)) {
    Say("its maps keep the sizes that they have; for others end it first: heaptap daemon --end");
  }
}

// Their exits were told to the recorder before us, which did not come to close their books.
void Recorder::FinishOrphans() {
  absl::StatusOr<std::map<uint64_t, std::vector<bpf::TallyEntry>>> tallies = books_->ReadAllTallies();
  absl::StatusOr<std::set<uint64_t>> closed = books_->ReadClosed();
  absl::StatusOr<std::map<uint64_t, bpf::RecordedProcess>> processes = books_->ReadProcesses();
  if (!tallies.ok() || !closed.ok() || !processes.ok()) return;
  for (const auto& [process_id, entries] : *tallies) {
    if (closed->contains(process_id)) {
      closed_.insert(process_id);
    } else if (!processes->contains(process_id) && FindTarget(process_id) == nullptr) {
      HandleExit(AddTarget(process_id, 0), {.is_known = false, .time = absl::Now()});
    }
  }
}

void Recorder::RecordRunningProcesses() {
  for (const pid_t pid : AllProcesses()) {
    if (FindRunning(pid) == nullptr) RecordRunning(pid).IgnoreError();
  }
}

void Recorder::HandleEnter(const heaptap_event& event) {
  Target& target = AddTarget(event.process_id, event.tgid);
  target.name = Printable(absl::string_view(event.comm, strnlen(event.comm, sizeof(event.comm))));
  target.is_saved = false;
  newcomers_.insert(event.process_id);
  spaces_.Hold(event.tgid);
}

void Recorder::IntroduceNewcomers() {
  for (const uint64_t process_id : std::exchange(newcomers_, {})) {
    Target* target = FindTarget(process_id);
    if (target == nullptr || target->started || target->ending.has_value()) continue;
    if (Introduce(*target)) ApplyPolicy(*target);
  }
}

bool Recorder::Introduce(Target& target) {
  const absl::StatusOr<std::vector<elf::Mapping>> mappings = elf::ReadExecutableMappings(target.pid);
  if (!mappings.ok()) return false;
  AddressSpace space;
  space.executable = ProcessExecutable(target.pid);
  uint64_t control_address = 0;
  std::set<std::pair<uint32_t, uint64_t>> seen;
  for (const elf::Mapping& mapping : *mappings) {
    space.mappings.Add(mapping);
    if (mapping.inode == 0 || !seen.insert({KernelDevice(mapping), mapping.inode}).second) continue;
    const absl::StatusOr<elf::MappedFile> file = elf::OpenMapped(target.pid, mapping);
    if (!file.ok()) continue;
    tables_.PrepareMapped(file->file.get(), mapping);
    if (!probe_files_.IsAttached(file->file.get())) continue;
    if (const absl::StatusOr<uint64_t> address = FindControl(file->file.get(), mapping); address.ok()) {
      control_address = *address;
    }
  }
  if (!books_->IsCurrent(target.pid, target.process_id)) return false;
  spaces_.Keep(target.pid, std::move(space));
  target.started = true;
  if (control_address == 0) return true;
  auto control = std::make_shared<heaptap_control>();
  const absl::Status status = WithMemory(target, [control, control_address](const ProcessHandle& handle) {
    absl::StatusOr<heaptap_control> read = ReadControl(handle, control_address);
    if (read.ok()) *control = *read;
    return read.status();
  });
  if (status.ok()) UseControl(target, *control, control_address);
  return true;
}

void Recorder::ApplyPolicy(Target& target) {
  const std::optional<Rules>& rules = options_.everyone->rules;
  if (rules.has_value()) {
    ProcessFacts facts;
    facts.pid = target.pid;
    if (rules->needs_facts()) {
      if (absl::StatusOr<ProcessFacts> read = ReadProcessFacts(target.pid); read.ok()) facts = *std::move(read);
    }
    target.policy = rules->Find(facts);
  }
  const Policy& policy = target.policy;
  books_->Configure(target.pid, target.process_id,
                    {.ignored = !policy.record,
                     .max_live = policy.max_live,
                     .max_tallies = policy.max_contexts,
                     .triggers = policy.triggers});
  if (policy.record) return;
  // Nobody will ask for it any more: its entry in the kernel says that it is left alone.
  if (target.control_address != 0 && !target.foreign) {
    WithMemory(target, [address = target.control_address](const ProcessHandle& handle) {
      return ReleaseControl(handle, address);
    }).IgnoreError();
  }
}

void Recorder::SetRules(Rules rules, const Policy& defaults, const Retention& retention, double budget) {
  options_.policy = defaults;
  options_.everyone->rules = std::move(rules);
  options_.everyone->budget = budget;
  pruner_->SetRetention(retention);
  if (absl::Status status = SetDefaults(); !status.ok()) Fail(status);
  for (auto& [process_id, target] : targets_) {
    if (target.ending.has_value() || !target.started) continue;
    ApplyPolicy(target);
    if (target.policy.record && !target.foreign) WriteControl(target);
  }
}

void Recorder::Tick(absl::Time now) {
  const absl::StatusOr<std::map<uint64_t, bpf::RecordedProcess>> processes = books_->ReadProcesses();
  if (!processes.ok()) return Fail(processes.status());
  for (const auto& [process_id, recorded] : *processes) {
    Target* target = FindTarget(process_id);
    if (target == nullptr) continue;
    const heaptap_process& process = recorded.process;
    const Reading reading = {.time = now,
                             .allocated_weight = process.allocated_weight,
                             .probes = process.allocations + process.frees,
                             .program_time = process.program_time};
    const double seconds = absl::ToDoubleSeconds(now - target->last.time);
    if (target->last.time != absl::InfinitePast() && seconds > 0) {
      const double traps = static_cast<double>(reading.probes - target->last.probes) * kTrapNanoseconds;
      const auto programs = static_cast<double>(reading.program_time - target->last.program_time);
      target->cost = (traps + programs) / 1e9 / seconds;
      target->allocation_rate = static_cast<double>(reading.allocated_weight - target->last.allocated_weight) / seconds;
    }
    target->last = reading;
  }
  KeepBudget();
  for (auto& [process_id, target] : targets_) {
    const absl::Duration every = target.policy.every;
    if (target.ending.has_value() || every <= absl::ZeroDuration() || now - target.dumped < every) continue;
    target.dumped = now;
    if (HasProfile(target)) Dump(target, HEAPTAP_DUMP_INTERVAL).IgnoreError();
  }
  SaveStates(now);
  if (absl::StatusOr<DumpPruner::Removed> removed = pruner_->Prune(now); !removed.ok()) Fail(removed.status());
  const bool is_filling = std::any_of(processes->begin(), processes->end(), [&](const auto& entry) {
    const heaptap_process& process = entry.second.process;
    const uint64_t bound = process.max_tallies != 0 ? process.max_tallies : options_.map_sizes.tallies;
    return static_cast<double>(process.tallies) > kFoldAt * static_cast<double>(bound);
  });
  if (!is_filling) return;
  if (const auto tallies = books_->ReadAllTallies(); tallies.ok()) FoldThreads(*tallies);
}

void Recorder::FoldThreads(const std::map<uint64_t, std::vector<bpf::TallyEntry>>& tallies) {
  for (const auto& [process_id, entries] : tallies) {
    const Target* target = FindTarget(process_id);
    if (target == nullptr || target->ending.has_value()) continue;
    std::map<uint32_t, bool> lives;
    for (const bpf::TallyEntry& entry : entries) {
      if (entry.tid == 0 || entry.tally.allocated.objects != entry.tally.freed.objects) continue;
      const auto [thread, is_new] = lives.try_emplace(entry.tid, true);
      if (is_new) thread->second = ThreadLives(target->pid, entry.tid);
      if (!thread->second) books_->Fold(target->pid, process_id, entry);
    }
  }
}

void Recorder::KeepBudget() {
  if (options_.everyone->budget <= 0) return;
  std::vector<Target*> targets;
  std::vector<Cost> costs;
  for (auto& [process_id, target] : targets_) {
    // Who has no control block, or another's word in it, samples as it likes.
    if (target.ending.has_value() || target.control_address == 0 || target.foreign || !target.reachable) continue;
    targets.push_back(&target);
    costs.push_back({.share = target.cost, .raised = target.raised});
  }
  const std::vector<uint32_t> steps = service::KeepBudget(costs, options_.everyone->budget);
  for (size_t i = 0; i < targets.size(); i++) {
    Target& target = *targets[i];
    if (steps[i] == target.raised) continue;
    target.raised = steps[i];
    WriteControl(target);
    Say(absl::StrCat(
        "process ", target.pid, " (", target.name, ") is sampled every 2^", target.LgSample(),
        " bytes now: ", steps[i] == 0 ? "what it costs is within the budget again" : "the budget is passed"));
  }
}

void Recorder::SaveStates(absl::Time now) {
  if (!states_.has_value()) return;
  for (auto& [process_id, target] : targets_) {
    if (target.is_saved || target.ending.has_value() || now - target.since < kSaveAfter) continue;
    const AddressSpace* space = Space(target);
    if (space == nullptr) continue;
    if (absl::Status status = states_->Save(target, *space); !status.ok()) return Fail(status);
    target.is_saved = true;
  }
}

void Recorder::End() {
  books_->SetSettings({}).IgnoreError();
  Abandon();
  if (pins_.has_value()) pins_->RemoveAll();
}

}  // namespace heaptap::service
