// SPDX-License-Identifier: Apache-2.0
//
// System-wide recording: start, takeover of an earlier recording, processes that enter, and the work of each second.
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

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

// The state of younger processes is not saved: most of them end soon.
constexpr absl::Duration kSaveAfter = absl::Seconds(1);

// Time for saving states, in each second.
constexpr absl::Duration kSaveTime = absl::Milliseconds(100);

// Time for reading mappings again after lost mapping events, in each second.
constexpr absl::Duration kRepairTime = absl::Milliseconds(100);

// The tallies of ended threads are folded from this share of the map, or of a process's bound, on. A process without a
// bound may have as many tallies as are still free, so one process alone never has more than half of the map.
constexpr double kFoldAt = 0.25;

// How long a process keeps its rate after the budget has made its samples rarer, at least.
constexpr absl::Duration kBudgetRest = absl::Seconds(10);

// Between two messages about rates.
constexpr absl::Duration kBudgetPause = absl::Minutes(1);

// Converts nanoseconds of CLOCK_MONOTONIC.
absl::Time TimeOf(uint64_t monotonic) {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::Now() - (absl::DurationFromTimespec(now) - absl::Nanoseconds(monotonic));
}

bool ThreadLives(pid_t pid, uint32_t tid) {
  return access(absl::StrCat("/proc/", pid, "/task/", tid).c_str(), F_OK) == 0;
}

}  // namespace

absl::Status Recorder::StartSystemWide() {
  const SystemWide& system_wide = *options_.system_wide;
  elf::FileDescriptor folder(folder_.Duplicate());
  if (!folder.valid()) return absl::UnavailableError(absl::StrCat(system_wide.state_folder, ": ", strerror(errno)));
  pruner_.emplace(std::move(folder), system_wide.retention);
  if (pins_.has_value()) {
    const std::string states_folder = absl::StrCat(system_wide.state_folder, "/recording");
    DrainOtherLayouts(states_folder);
    absl::StatusOr<TargetStates> states = TargetStates::Open(states_folder, bpf::Books::Layout(), books_->adopted());
    if (!states.ok()) return states.status();
    states_ = *std::move(states);
  }
  if (absl::Status status = SetDefaults(); !status.ok()) return status;
  if (books_->adopted()) TakeOverBooks();
  for (const std::string& library : system_wide.libraries) {
    absl::StatusOr<bool> attached = AttachFile(library);
    if (!attached.ok()) return attached.status();
    if (!*attached) return absl::InvalidArgumentError(absl::StrCat(library, " contains no sampled allocator"));
  }
  RecordRunningProcesses();
  return absl::OkStatus();
}

// The settings of a process until its start event is handled and the rules are applied.
absl::Status Recorder::SetDefaults() {
  const Policy& policy = options_.policy;
  return books_->SetSettings({.everyone = 1,
                              .flags = HEAPTAP_PROCESS_FOLLOW | HEAPTAP_PROCESS_FIGURES | HEAPTAP_PROCESS_ENTERED,
                              .limits = {policy.max_live, policy.max_contexts},
                              .triggers = bpf::ToKernel(policy.triggers),
                              .lg_sample = policy.lg_sample.value_or(HEAPTAP_NO_RATE),
                              .collector_pid = static_cast<uint32_t>(getpid()),
                              .live_room = 0,
                              .tallies_room = 0});
}

void Recorder::DrainOtherLayouts(const std::string& states_folder) {
  for (const std::string& layout : pins_->OtherLayouts()) {
    const bpf::Pins other = pins_->Other(layout);
    if (absl::Status status = bpf::StopOtherLayout(other); !status.ok()) Say(status.message());
    const absl::StatusOr<bpf::OtherBooks> books = bpf::ReadOtherLayout(other);
    if (!books.ok()) {
      Say(absl::StrCat("discarded the recording of another heaptap version (", layout,
                       "), which cannot be read: ", books.status().message()));
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
      WriteDump(target, HEAPTAP_DUMP_FINAL, BuildOtherProfile(*books, Subject(target))).IgnoreError();
    }
    other.RemoveAll();
    Say(absl::StrCat("ended the recording of another heaptap version (", layout, ") with a last dump of each of its ",
                     books->tallies.size(), " processes; a new recording begins"));
  }
}

void Recorder::TakeOverBooks() {
  tables_.StartFrom(books_->unwind().Clear());
  tables_.EnterVdso();
  ForgetClosedByPredecessor();
  absl::StatusOr<std::map<uint64_t, bpf::RecordedProcess>> processes = books_->ReadProcesses();
  if (!processes.ok()) return Fail(processes.status());
  for (const auto& [process_id, recorded] : *processes) {
    if ((recorded.process.flags & HEAPTAP_PROCESS_IGNORED) != 0) continue;
    Target& target = AddTarget(process_id, recorded.tgid);
    target.name = ProcessName(recorded.tgid);
    target.since = TimeOf(recorded.process.identity.start_time);
    if (absl::StatusOr<TargetState> state = states_->Load(process_id); state.ok()) {
      const Policy policy = target.policy;
      target = std::move(state->target);
      target.policy = policy;
      target.is_saved = true;
      spaces_.Keep(target.pid, std::move(state->space));  // in case it ends before Inspect
    }
    Inspect(target);
    if (target.started) ApplyPolicy(target);
  }
  Pump();
  FindUnnoticedEnds();
  FinishOrphans();
  Say(absl::StrCat("took over a recording of ", targets_.size(), targets_.size() == 1 ? " process" : " processes"));
  if (!options_.system_wide->shall_end && !books_->HasSizes(options_.map_sizes)) {
    Say("the maps keep their sizes; to change them, end the recording first: heaptap daemon --end");
  }
}

// Done first, because the next sweep removes the marks of closed processes.
void Recorder::ForgetClosedByPredecessor() {
  absl::StatusOr<std::map<uint64_t, std::vector<bpf::TallyEntry>>> tallies = books_->ReadAllTallies();
  absl::StatusOr<std::set<uint64_t>> closed = books_->ReadClosed();
  if (!tallies.ok() || !closed.ok()) return;
  for (const uint64_t process_id : *closed) {
    if (tallies->contains(process_id) || books_->IsUnnoticed(process_id)) closed_.insert(process_id);
  }
  ForgetClosed();
}

// Closes books of processes whose end no event will report.
void Recorder::FinishOrphans() {
  absl::StatusOr<std::map<uint64_t, std::vector<bpf::TallyEntry>>> tallies = books_->ReadAllTallies();
  absl::StatusOr<std::map<uint64_t, bpf::RecordedProcess>> processes = books_->ReadProcesses();
  absl::StatusOr<std::set<uint64_t>> closed = books_->ReadClosed();
  if (!tallies.ok() || !closed.ok() || !processes.ok()) return;
  // Handles processes that began or ended during the reading.
  Pump();
  for (const auto& [process_id, entries] : *tallies) {
    if (closed->contains(process_id) || closed_.contains(process_id)) continue;
    if (!processes->contains(process_id) && FindTarget(process_id) == nullptr) {
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
  // An earlier target with this PID must have ended.
  for (auto& [process_id, before] : targets_) {
    if (process_id != event.process_id && before.pid == target.pid && !before.ending.has_value()) EndUnseen(before);
  }
  spaces_.Hold(event.tgid);
}

void Recorder::InspectNewcomers() {
  for (const uint64_t process_id : std::exchange(newcomers_, {})) {
    Target* target = FindTarget(process_id);
    if (target == nullptr || target->started || target->ending.has_value()) continue;
    if (Inspect(*target)) ApplyPolicy(*target);
  }
}

bool Recorder::Inspect(Target& target) {
  const absl::StatusOr<std::vector<elf::Mapping>> mappings = elf::ReadExecutableMappings(target.pid);
  if (!mappings.ok()) return false;
  AddressSpace space;
  space.executable = ProcessExecutable(target.pid);
  uint64_t control_address = 0;
  bool has_allocator = false;
  std::set<std::pair<uint32_t, uint64_t>> seen;
  for (const elf::Mapping& mapping : *mappings) {
    space.mappings.Add(mapping);
    if (mapping.inode == 0 || !seen.insert({KernelDevice(mapping), mapping.inode}).second) continue;
    const absl::StatusOr<elf::MappedFile> file = elf::OpenMapped(target.pid, mapping);
    if (!file.ok()) continue;
    tables_.PrepareMapped(file->file.get(), mapping);
    if (!probe_files_.IsAttached(file->file.get())) continue;
    has_allocator = true;
    if (const absl::StatusOr<uint64_t> address = FindControl(file->file.get(), mapping); address.ok()) {
      control_address = *address;
    }
  }
  if (!books_->IsCurrent(target.pid, target.process_id)) return false;
  spaces_.Keep(target.pid, std::move(space));
  if (!has_allocator) return false;
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
  NoteOwner(target);
  const std::optional<Rules>& rules = options_.system_wide->rules;
  if (rules.has_value()) {
    ProcessFacts facts;
    facts.pid = target.pid;
    facts.command = target.name;  // all that is known if the process has ended
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
  // Its entry in the kernel marks it as ignored until its next exec.
  ignored_.insert(target.process_id);
  if (target.control_address != 0 && !target.foreign) {
    WithMemory(target, [address = target.control_address](const ProcessHandle& handle) {
      return ReleaseControl(handle, address);
    }).IgnoreError();
  }
}

void Recorder::SetRules(Rules rules, const Policy& defaults, const Retention& retention, double budget) {
  options_.policy = defaults;
  options_.system_wide->rules = std::move(rules);
  options_.system_wide->budget = budget;
  pruner_->SetRetention(retention);
  if (absl::Status status = SetDefaults(); !status.ok()) Fail(status);
  for (auto& [process_id, target] : targets_) {
    if (target.ending.has_value() || !target.started) continue;
    ApplyPolicy(target);
    if (target.policy.record && !target.foreign) WriteControl(target);
  }
  RecordIgnored();
}

void Recorder::RecordIgnored() {
  const absl::StatusOr<std::map<uint64_t, bpf::RecordedProcess>> processes = books_->ReadProcesses();
  if (!processes.ok()) return Fail(processes.status());
  for (const auto& [process_id, recorded] : *processes) {
    if ((recorded.process.flags & HEAPTAP_PROCESS_IGNORED) == 0 || ignored_.contains(process_id)) continue;
    books_->Untrack(recorded.tgid);
    // With new books, because the old ones lack what happened meanwhile.
    RecordRunning(recorded.tgid).IgnoreError();
  }
}

void Recorder::Tick(absl::Time now) {
  const absl::StatusOr<std::map<uint64_t, bpf::RecordedProcess>> processes = books_->ReadProcesses();
  if (!processes.ok()) return Fail(processes.status());
  for (const auto& [process_id, recorded] : *processes) {
    Target* target = FindTarget(process_id);
    if (target == nullptr) continue;
    if (target->last.time == absl::InfinitePast()) {
      NoteOwner(*target);  // once more, when it has settled
      // Recorded since its exec or its parent's fork, but its allocator was attached after heaptap:start.
      if (!target->started) newcomers_.insert(process_id);
    }
    const heaptap_process& process = recorded.process;
    const Reading reading = {.time = now,
                             .allocated_weight = process.figures.allocated_weight,
                             .probes = process.costs.allocations + process.costs.frees,
                             .program_time = process.costs.program_time};
    const double seconds = absl::ToDoubleSeconds(now - target->last.time);
    if (target->last.time != absl::InfinitePast() && seconds > 0) {
      const double traps = static_cast<double>(reading.probes - target->last.probes) * kTrapNanoseconds;
      const auto programs = static_cast<double>(reading.program_time - target->last.program_time);
      target->cost = (traps + programs) / 1e9 / seconds;
      target->allocation_rate = static_cast<double>(reading.allocated_weight - target->last.allocated_weight) / seconds;
    }
    target->last = reading;
  }
  EndMissing(*processes);
  RepairSpaces();
  KeepBudget(now);
  for (auto& [process_id, target] : targets_) {
    const bool is_due = target.postponed.has_value() && now - target.triggered >= kTriggerPause;
    if (is_due && !target.ending.has_value()) HandleTrigger(target, *target.postponed);
    const absl::Duration every = target.policy.every;
    if (target.ending.has_value() || every <= absl::ZeroDuration() || now - target.dumped < every) continue;
    target.dumped = now;
    if (HasProfile(target)) Dump(target, HEAPTAP_DUMP_INTERVAL).IgnoreError();
  }
  SaveStates(now);
  ReleaseFiles(now);
  if (absl::StatusOr<DumpPruner::Removed> removed = pruner_->Prune(now); !removed.ok()) Fail(removed.status());
  // Signed: a reset that races with a sample can leave the count at -1.
  const auto is_filling = [](int64_t tallies, uint64_t bound) {
    return static_cast<double>(tallies) > kFoldAt * static_cast<double>(bound);
  };
  int64_t tallies_of_all = 0;
  bool has_full = false;
  for (const auto& [process_id, recorded] : *processes) {
    const heaptap_process& process = recorded.process;
    const auto tallies_of_one = static_cast<int64_t>(process.figures.tallies);
    tallies_of_all += tallies_of_one;
    has_full |= process.limits.max_tallies != 0 && is_filling(tallies_of_one, process.limits.max_tallies);
  }
  if (!has_full && !is_filling(tallies_of_all, std::min(options_.map_sizes.tallies, options_.map_sizes.stacks))) return;
  if (const auto tallies = books_->ReadAllTallies(); tallies.ok()) FoldThreads(*tallies);
}

// Ends targets that the kernel no longer knows: an ignored process sends no event for its exec, and the event of an end
// may have been dropped. Two looks are needed, because an event that did arrive is handled before the second one.
void Recorder::EndMissing(const std::map<uint64_t, bpf::RecordedProcess>& processes) {
  for (auto& [process_id, target] : targets_) {
    if (target.ending.has_value()) continue;
    const bool was_missing = std::exchange(target.is_missing, !processes.contains(process_id));
    if (was_missing && target.is_missing) EndUnseen(target);
  }
}

void Recorder::EndUnseen(Target& target) {
  // The mappings under this PID may belong to another process by now.
  const bool is_used_again = std::any_of(targets_.begin(), targets_.end(), [&](const auto& entry) {
    return &entry.second != &target && entry.second.pid == target.pid && !entry.second.ending.has_value();
  });
  HandleExit(target, {.time = absl::Now(), .space = is_used_again ? std::make_shared<AddressSpace>() : nullptr});
}

// Any process can map files so fast that mapping events of all processes are lost.
void Recorder::RepairSpaces() {
  if (std::exchange(mappings_lost_, mapping_events_->lost()) != mappings_lost_) {
    for (auto& [process_id, target] : targets_) target.has_lost_mappings = true;
    spaces_.DropEnded();
  }
  const absl::Time end = absl::Now() + kRepairTime;
  for (auto& [process_id, target] : targets_) {
    if (!target.has_lost_mappings || target.ending.has_value()) continue;
    target.has_lost_mappings = false;
    const absl::StatusOr<std::vector<elf::Mapping>> mappings = elf::ReadExecutableMappings(target.pid);
    if (!mappings.ok() || !books_->IsCurrent(target.pid, process_id)) continue;
    if (spaces_.Find(target.pid) == nullptr) {
      spaces_.Keep(target.pid, {.mappings = {}, .executable = ProcessExecutable(target.pid)});
    }
    spaces_.Hold(target.pid);
    for (const elf::Mapping& mapping : *mappings) {
      bpf::MappingEvent event = {};
      event.kind = bpf::MappingEvent::kMap;
      event.pid = target.pid;
      event.mapping = mapping;
      spaces_.Apply(event);
    }
    target.is_saved = false;
    if (absl::Now() > end) return;
  }
}

void Recorder::FoldThreads(const std::map<uint64_t, std::vector<bpf::TallyEntry>>& tallies) {
  for (const auto& [process_id, entries] : tallies) {
    const Target* target = FindTarget(process_id);
    if (target == nullptr || target->ending.has_value()) continue;
    // Read before checking which threads live.
    const absl::StatusOr<heaptap_process> process = books_->ReadProcess(target->pid);
    if (!process.ok() || process->identity.id != process_id) continue;
    std::map<uint32_t, bool> lives;
    for (const bpf::TallyEntry& entry : entries) {
      if (entry.tid == 0 || entry.tally.allocated.objects != entry.tally.freed.objects) continue;
      const auto [thread, is_new] = lives.try_emplace(entry.tid, true);
      if (is_new) thread->second = ThreadLives(target->pid, entry.tid);
      if (!thread->second) books_->Fold(target->pid, process_id, entry, process->threads_begun);
    }
  }
}

void Recorder::KeepBudget(absl::Time now) {
  if (options_.system_wide->budget <= 0) return;
  std::vector<Target*> targets;
  std::vector<Cost> costs;
  for (auto& [process_id, target] : targets_) {
    // The rate of these processes cannot be set.
    if (target.ending.has_value() || target.control_address == 0 || target.foreign || !target.reachable) continue;
    targets.push_back(&target);
    costs.push_back({.share = target.cost, .raised = target.raised});
  }
  const std::vector<uint32_t> steps = service::KeepBudget(costs, options_.system_wide->budget);
  for (size_t i = 0; i < targets.size(); i++) {
    Target& target = *targets[i];
    if (steps[i] == target.raised) continue;
    // The rate must not follow each burst of allocations.
    if (steps[i] < target.raised && now - target.raised_at < kBudgetRest) continue;
    if (steps[i] > target.raised) target.raised_at = now;
    target.raised = steps[i];
    WriteControl(target);
    rate_changes_.insert(target.process_id);
  }
  SayBudget(now);
}

// Prints at most one line per kBudgetPause.
void Recorder::SayBudget(absl::Time now) {
  std::erase_if(rate_changes_, [&](uint64_t process_id) { return FindTarget(process_id) == nullptr; });
  if (rate_changes_.empty() || now - budget_reported_ < kBudgetPause) return;
  budget_reported_ = now;
  const auto raised = [&](uint64_t process_id) { return FindTarget(process_id)->raised; };
  // The process with the rarest samples stands for all.
  const uint64_t first = *std::max_element(rate_changes_.begin(), rate_changes_.end(),
                                           [&](uint64_t a, uint64_t b) { return raised(a) < raised(b); });
  const Target& target = *FindTarget(first);
  const double samples_a_minute = std::ldexp(target.allocation_rate * 60, -static_cast<int>(target.LgSample()));
  std::string line = absl::StrCat(
      "process ", target.pid, " (", target.name, ") is now sampled every 2^", target.LgSample(),
      " bytes: ", target.raised == 0 ? "its cost is within the budget again" : "recording exceeds the budget");
  if (target.raised != 0 && samples_a_minute < 1)
    absl::StrAppend(&line, "; at this rate it gets less than one sample per minute");
  if (const size_t others = rate_changes_.size() - 1; others != 0) {
    absl::StrAppend(&line, "; the rates of ", others, others == 1 ? " other process" : " other processes",
                    " changed too");
  }
  Say(line);
  rate_changes_.clear();
}

void Recorder::SaveStates(absl::Time now) {
  if (!states_.has_value()) return;
  const absl::Time end = absl::Now() + kSaveTime;
  // Continues where the last call stopped.
  auto next = targets_.upper_bound(last_saved_);
  for (size_t left = targets_.size(); left > 0; left--, ++next) {
    if (next == targets_.end()) next = targets_.begin();
    auto& [process_id, target] = *next;
    if (target.is_saved || target.ending.has_value() || now - target.since < kSaveAfter) continue;
    const AddressSpace* space = Space(target);
    if (space == nullptr) continue;
    if (absl::Status status = states_->Save(target, *space); !status.ok()) return Fail(status);
    target.is_saved = true;
    last_saved_ = process_id;
    if (absl::Now() > end) return;
  }
}

void Recorder::End() {
  books_->SetSettings({}).IgnoreError();
  Abandon();
  if (pins_.has_value()) pins_->RemoveAll();
  if (states_.has_value()) states_->RemoveAll();
}

}  // namespace heaptap::service
