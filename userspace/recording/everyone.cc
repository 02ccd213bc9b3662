// SPDX-License-Identifier: Apache-2.0
#include "userspace/recording/everyone.h"

#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/messages.h"
#include "userspace/base/printable_text.h"
#include "userspace/process/facts.h"
#include "userspace/process/handle.h"
#include "userspace/targets/budget.h"

namespace heaptap::recording {
namespace {

// The time at the end of a recording for the processes that still wait to be looked at.
constexpr absl::Duration kEndPatience = absl::Seconds(10);

// The time for the looks at the processes that are running when the recording begins: no user can delay the start for
// longer.
constexpr absl::Duration kFirstPatience = absl::Milliseconds(1500);

// The pause between two looks at all processes. Under a flood of mappings, each look would find that events were lost
// again.
constexpr absl::Duration kRepairPause = absl::Seconds(2);

// Notes what the books say now, and what has changed since the last time.
void Measure(BookFigures& figures, const heaptap_process& process, base::Instant now) {
  const Reading reading = {.time = now,
                           .allocated_weight = process.figures.allocated_weight,
                           .probes = process.costs.allocations + process.costs.frees,
                           .program_time = process.costs.program_time};
  const Reading last = std::exchange(figures.last, reading);
  const double seconds = absl::ToDoubleSeconds(now - last.time);
  if (last.time == base::Instant::InfinitePast() || seconds <= 0) return;
  const double traps = static_cast<double>(reading.probes - last.probes) * kTrapNanoseconds;
  const auto programs = static_cast<double>(reading.program_time - last.program_time);
  figures.cost = (traps + programs) / 1e9 / seconds;
  figures.allocation_rate = static_cast<double>(reading.allocated_weight - last.allocated_weight) / seconds;
}

}  // namespace

Everyone::Everyone(const Means& means, RecorderOptions& options, Calls calls)
    : means_(means),
      options_(options),
      record_running_(std::move(calls.record_running)),
      pump_(std::move(calls.pump)),
      rates_(means_.targets, means_.controls),
      upkeep_({.books = means_.books,
               .orders = means_.orders,
               .targets = means_.targets,
               .dumps = means_.dumps,
               .background = means.background}),
      newcomers_(means_.looks) {}

void Everyone::Fail(const absl::Status& status) {
  failed_ = true;
  base::Say(status.message());
}

absl::Status Everyone::Restrict() {
  for (const std::string& folder : means_.groups.Missing()) {
    base::Say(absl::StrCat("there is no control group ", base::Printable(folder), " yet; waiting for it"));
  }
  return UseGroups();
}

absl::Status Everyone::UseGroups() {
  if (absl::Status status = means_.books.processes().RestrictTo(means_.groups.fds()); !status.ok()) return status;
  return SetDefaults();
}

void Everyone::RefreshGroups() {
  const std::vector<process::ControlGroups::Change> changes = means_.groups.Refresh();
  if (changes.empty()) return;
  // Without mapping events of a group, its processes still enter when they hit a probe.
  for (const auto& [before, now] : changes) {
    if (absl::Status status = means_.mapping_events.ReplaceGroup(before, now); !status.ok()) Fail(status);
  }
  if (absl::Status status = UseGroups(); !status.ok()) return Fail(status);
  RecordRunningProcesses();
}

std::optional<uint32_t> Everyone::FirstRate() const {
  const std::optional<uint32_t> rate = options_.policy.lg_sample;
  const std::optional<Rules>& rules = options_.system_wide->rules;
  const std::optional<uint32_t> least = rules.has_value() ? rules->LeastRate() : std::nullopt;
  if (!least.has_value()) return rate;
  return std::min(rate.value_or(HEAPTAP_DEFAULT_LG_SAMPLE), *least);
}

void Everyone::TellRate() { means_.allocators.TellRate(FirstRate()); }

// The settings of a process until its start event is handled and the rules are applied.
absl::Status Everyone::SetDefaults() {
  const Policy& policy = options_.policy;
  return means_.books.processes().SetSettings(
      {.everyone = 1,
       .flags = HEAPTAP_PROCESS_FOLLOW | HEAPTAP_PROCESS_FIGURES | HEAPTAP_PROCESS_ENTERED,
       .limits = {policy.max_live, policy.max_contexts},
       .triggers = bpf::ToKernel(policy.triggers),
       .lg_sample = FirstRate().value_or(HEAPTAP_NO_RATE),
       .collector_pid = static_cast<uint32_t>(getpid()),
       .live_room = 0,
       .tallies_room = 0,
       .processes_room = 0,
       .groups = 0,
       .reserved = 0});
}

void Everyone::TakeOverBooks() {
  means_.endings.ForgetClosedByPredecessor();
  absl::StatusOr<std::map<uint64_t, bpf::RecordedProcess>> processes = means_.books.processes().ReadAll();
  if (!processes.ok()) return Fail(processes.status());
  for (const auto& [process_id, recorded] : *processes) {
    if ((recorded.process.flags & HEAPTAP_PROCESS_IGNORED) != 0) continue;
    Target& target = means_.targets.Add(process_id, recorded.tgid, options_.policy);
    target.books.state_.begun = base::Instant::FromNanoseconds(recorded.process.identity.start_time);
    target.books.state_.since = base::ToWall(target.books->begun);
    if (absl::StatusOr<TargetState> state = states_->Load(process_id); state.ok()) {
      const base::Instant begun = target.books->begun;
      means_.targets.Restore(target, std::move(state->target));
      target.books.state_.begun = begun;
      target.is_saved = true;
      target.books.state_.mappings_saved = base::Instant::FromNanoseconds(state->saved);
      means_.spaces.Keep(target.pid, std::move(state->space));
    }
    AddNewcomer(target.pid);
    if (!target.image->has_started) continue;
    // Control is taken at once: a process that still names an earlier, dead collector gives up its next dump.
    ApplyPolicy(target, [this](Target& now) {
      if (!now.policy->record || now.image->control_address == 0) return;
      means_.controls.FindAndTake(now, {now.image->control_address}, [](const absl::Status&) {});
    });
  }
  pump_();
  means_.endings.FindAllUnnoticedEnds();
  means_.endings.FinishOrphans(pump_);
  base::Say(absl::StrCat("took over a recording of ", means_.targets.size(),
                         means_.targets.size() == 1 ? " process" : " processes"));
  if (!options_.system_wide->shall_end && !means_.books.HasSizes(options_.map_sizes)) {
    base::Say(absl::StrCat("the maps keep their sizes; to change them, end the recording first: ",
                           options_.system_wide->end_command));
  }
}

void Everyone::RecordRunningProcesses() {
  const absl::StatusOr<std::vector<pid_t>> pids = process::ListProcesses();
  if (!pids.ok()) {
    // Processes that no longer allocate would never be seen.
    if (!std::exchange(shall_list_again_, true)) base::Say(absl::StrCat(pids.status().message(), "; trying again"));
    return;
  }
  shall_list_again_ = false;
  for (const pid_t pid : *pids) {
    if (means_.targets.FindRunning(pid) == nullptr) AddNewcomer(pid);
  }
}

void Everyone::TryToRecord(pid_t pid) {
  record_running_(pid, [this, pid](const absl::Status& status) { HandleTried(pid, status); });
}

void Everyone::HandleTried(pid_t pid, const absl::Status& status) {
  if (status.ok() || absl::IsNotFound(status)) {
    looks_again_.Succeed(pid);
    return;
  }
  looks_again_.Fail(pid, base::Now());
  failed_looks_.insert(pid);
}

bool Everyone::HasFailedOnce() const {
  return std::ranges::any_of(failed_looks_, [this](pid_t pid) { return looks_again_.failures(pid) == 1; });
}

void Everyone::HandleEnter(const heaptap_event& event) {
  const base::OneThread one_thread(thread_);
  Target& target = means_.targets.Add(event.process_id, event.tgid, options_.policy);
  target.name = base::AsciiOnly(absl::string_view(event.comm, strnlen(event.comm, sizeof(event.comm))));
  target.is_saved = false;
  AddNewcomer(target.pid);
  // An earlier target with this PID must have ended.
  for (const uint64_t process_id : means_.targets.WithPid(target.pid)) {
    Target& before = *means_.targets.Find(process_id);
    if (process_id != event.process_id && !before.ending.has_value()) means_.endings.EndUnseen(before);
  }
  means_.spaces.Hold(event.tgid);
}

void Everyone::HandleStart(Target& target, const std::function<void(Target&)>& take) {
  newcomers_.Forget(static_cast<uint64_t>(target.pid));
  ApplyPolicy(target, take);
  // The process began before mappings were watched.
  if (!means_.spaces.Hold(target.pid)) AddNewcomer(target.pid);
}

void Everyone::BeginBatch(base::Instant now) {
  means_.queries.ForgetSummaries(now);
  upkeep_.FoldSome();
}

void Everyone::EndBatch() {
  const base::OneThread one_thread(thread_);
  for (const uint64_t process_id : std::exchange(to_close_, {})) means_.endings.Close(process_id);
  means_.readings.ReadWanted();
  newcomers_.Serve([this](uid_t, uint64_t pid) { LookAt(static_cast<pid_t>(pid)); });
}

void Everyone::InspectFirst() {
  const auto is_over = [this] {
    EndBatch();
    return HasInspected();
  };
  means_.looks.WaitUntil(is_over, base::Now() + kFirstPatience);
}

void Everyone::SaveAllStates() {
  if (states_ != nullptr) upkeep_.SaveAllStates(*states_);
}

bool Everyone::HasInspected() {
  // Files that are being read make another look necessary.
  means_.errands.HandleDone();
  means_.orders.HandleDone();
  return newcomers_.empty() && means_.looks.IsIdle() && means_.orders.IsIdle() && !means_.allocators.IsWaiting();
}

void Everyone::InspectAll() {
  const auto look = [this](uid_t, uint64_t pid) {
    if (Target* const target = means_.targets.FindRunning(static_cast<pid_t>(pid)); target != nullptr) Inspect(*target);
  };
  const auto is_over = [&] {
    newcomers_.Serve(look);
    return HasInspected();
  };
  means_.looks.WaitUntil(is_over, base::Now() + kEndPatience);
}

void Everyone::Inspect(const Target& target) {
  // From now on its mapping events count.
  if (means_.spaces.Find(target.pid) == nullptr) means_.spaces.Keep(target.pid, {});
  means_.allocators.Inspect(target.pid, [this, id = target.process_id](absl::StatusOr<Inspection> inspection) {
    HandleInspected(id, std::move(inspection));
  });
}

void Everyone::HandleInspected(uint64_t process_id, absl::StatusOr<Inspection> inspection) {
  Target* const found = means_.targets.Find(process_id);
  if (found == nullptr || found->ending.has_value()) return;
  Target& target = *found;
  if (!inspection.ok()) {
    if (!absl::IsNotFound(inspection.status())) means_.readings.Want(target);
    return HandleTried(target.pid, inspection.status());
  }
  const bool is_current = means_.books.processes().IsCurrent(target.pid, target.process_id);
  if (is_current && means_.readings.NoteLook(target, inspection->facts, inspection->begin)) {
    HandleRead(target, &inspection->facts);
  }
  if (inspection->is_pending) return;
  for (const auto& [file, mapping] : inspection->all) means_.unwinding.tables().PrepareMapped(file, mapping);
  if (!is_current) return;
  if (target.name == kUnknownName) target.name = base::AsciiOnly(inspection->facts.command);
  const base::Instant known = target.books->mappings_saved.value_or(target.books->begun);
  means_.spaces.Update(target.pid, inspection->space, known.nanoseconds());
  target.is_saved = false;
  if (!means_.allocators.HasAttached(*inspection)) return;
  if (Controls::NoteStarted(target)) Configure(target, inspection->facts);
  if (!target.policy->record || inspection->control_addresses.empty()) return HandleTried(target.pid, absl::OkStatus());
  means_.controls.FindAndTake(target, inspection->control_addresses,
                              [this, pid = target.pid](const absl::Status& taken) {
                                HandleTried(pid, worker::MayPass(taken) ? taken : absl::OkStatus());
                              });
}

void Everyone::ApplyPolicy(Target& target, Then then) {
  const std::optional<Rules>& rules = options_.system_wide->rules;
  process::Facts facts;
  facts.pid = target.pid;
  facts.command = target.name;
  if (!rules.has_value() || !rules->needs_facts()) {
    if (!target.facts->is_known()) means_.readings.Want(target);
    Configure(target, facts);
    return then(target);
  }
  // The target's policy if it ends before its facts are read.
  target.policy.state_ = rules->Find(facts);
  target.policy_state.state_.was_found = true;
  target.policy_state.state_.awaits_facts = true;
  without_facts_[target.process_id].push_back(std::move(then));
  means_.readings.Want(target);
}

// A look may find a process alive although the kernel reports its end before its books are opened. Nothing would close
// these books.
bool Everyone::IsTooLate(const Target& target, const process::Facts* facts) const {
  if (!bpf::IsTracked(target.process_id) || target.facts->was_running) return false;
  if (facts != nullptr && !facts->is_ending) return false;
  const absl::StatusOr<heaptap_process> process = means_.books.processes().Read(target.pid);
  const bool is_current = process.ok() && process->identity.id == target.process_id;
  return is_current && process->figures.allocated_weight == 0;
}

void Everyone::HandleRead(Target& target, const process::Facts* facts) {
  if (IsTooLate(target, facts)) {
    means_.books.processes().Untrack(target.pid);
    to_close_.insert(target.process_id);
  }
  means_.requests.NoteUser(target);
  if (!std::exchange(target.policy_state.state_.awaits_facts, false)) return;
  const auto then = without_facts_.extract(target.process_id);
  if (facts != nullptr) {
    Configure(target, *facts);
  } else {
    process::Facts known;
    known.pid = target.pid;
    known.command = target.name;
    Configure(target, known);
  }
  if (!then.empty()) {
    for (const Then& one : then.mapped()) one(target);
  } else if (target.policy->record && target.image->control_address != 0) {
    // The process has got other books since then (prof.reset).
    means_.controls.FindAndTake(target, {target.image->control_address}, [](const absl::Status&) {});
  }
}

void Everyone::SetPolicy(Target& target, const process::Facts& facts) {
  means_.readings.Want(target);
  Configure(target, facts);
}

void Everyone::Configure(Target& target, const process::Facts& facts) {
  if (const std::optional<Rules>& rules = options_.system_wide->rules; rules.has_value()) {
    target.policy.state_ = rules->Find(facts);
    target.policy_state.state_.was_found = true;
  }
  const Policy& policy = *target.policy;
  const absl::Status status = means_.books.processes().Configure(target.pid, target.process_id,
                                                                 {.ignored = !policy.record,
                                                                  .max_live = policy.max_live,
                                                                  .max_tallies = policy.max_contexts,
                                                                  .triggers = policy.triggers});
  const bool is_refused = !status.ok() && !absl::IsNotFound(status);
  if (is_refused && !target.policy_state->is_unconfigured) {
    Fail(absl::Status(status.code(), absl::StrCat(status.message(), "; its rule (", target.name,
                                                  ") does not hold until heaptap succeeds; it tries every second")));
  }
  target.policy_state.state_.is_unconfigured = is_refused;
  if (policy.record || is_refused) return;
  // Its entry in the kernel marks it as ignored until its next exec.
  to_close_.insert(target.process_id);
  if (!target.control->is_foreign) means_.controls.Release(target);
}

void Everyone::SetRules(Rules rules, const Policy& defaults, const Retention& retention, double budget) {
  options_.policy = defaults;
  options_.system_wide->rules = std::move(rules);
  options_.system_wide->budget = budget;
  means_.dumps.SetRetention(retention);
  if (absl::Status status = SetDefaults(); !status.ok()) Fail(status);
  TellRate();
  for (auto& [process_id, target] : means_.targets) {
    if (target.ending.has_value() || !target.image->has_started) continue;
    ApplyPolicy(target, [this](Target& now) {
      if (now.policy->record && !now.control->is_foreign) means_.controls.Write(now);
    });
  }
  RecordIgnored();
}

void Everyone::RecordIgnored() {
  const absl::StatusOr<std::map<uint64_t, bpf::RecordedProcess>> processes = means_.books.processes().ReadAll();
  if (!processes.ok()) return Fail(processes.status());
  for (const auto& [process_id, recorded] : *processes) {
    if ((recorded.process.flags & HEAPTAP_PROCESS_IGNORED) == 0 || to_close_.contains(process_id)) continue;
    means_.books.processes().Untrack(recorded.tgid);
    // The process gets new books, because the old ones lack what happened meanwhile.
    AddNewcomer(recorded.tgid);
  }
}

void Everyone::Tick(base::Instant now) {
  const base::OneThread one_thread(thread_);
  RefreshGroups();
  if (shall_list_again_) RecordRunningProcesses();
  std::erase_if(failed_looks_, [&](pid_t pid) {
    const bool is_due = looks_again_.IsDue(pid, now);
    if (is_due) AddNewcomer(pid);
    return is_due;
  });
  const absl::StatusOr<std::map<uint64_t, bpf::RecordedProcess>> processes = means_.books.processes().ReadAll();
  if (!processes.ok()) return Fail(processes.status());
  for (const auto& [process_id, recorded] : *processes) {
    Target* target = means_.targets.Find(process_id);
    if (target == nullptr) continue;
    const bool is_new = target->books->last.time == base::Instant::InfinitePast();
    // A new target is read once more, when it has settled.
    if (is_new || !target->facts->is_known() || target->policy_state->awaits_facts) means_.readings.Want(*target);
    if (is_new) {
      // The target is recorded since its exec or its parent's fork, but its allocator was attached after heaptap:start.
      if (!target->image->has_started) AddNewcomer(target->pid);
    }
    Measure(target->books.state_, recorded.process, now);
  }
  std::erase_if(without_facts_, [this](const auto& waiting) { return means_.targets.Find(waiting.first) == nullptr; });
  means_.endings.EndMissing(*processes);
  for (auto& [process_id, target] : means_.targets) {
    if (target.ending.has_value()) continue;
    if (target.policy_state->is_unconfigured) ApplyPolicy(target);
    if (target.control->is_unwritten && target.policy->record && !target.control->is_foreign)
      means_.controls.Write(target);
  }
  RepairSpaces(now);
  rates_.Keep(now, options_.system_wide->budget);
  for (auto& [process_id, target] : means_.targets) {
    if (!target.ending.has_value()) means_.requests.WriteDue(target, now);
  }
  if (means_.dumps.RenewFolder()) {
    for (auto& [process_id, target] : means_.targets) target.is_saved = false;
  }
  if (states_ != nullptr) upkeep_.SaveStates(*states_, now);
  means_.allocators.Release(now);
  means_.errands.EndIdle(now);
  means_.looks.EndIdle(now);
  means_.orders.EndIdle(now);
  means_.dumps.Prune(base::WallNow());
  upkeep_.ReturnMemory(now);
  upkeep_.FoldWhenFull(*processes, std::min(options_.map_sizes.tallies, options_.map_sizes.stacks), now);
}

// Any process can map files so fast that mapping events of all processes are lost.
void Everyone::RepairSpaces(base::Instant now) {
  const uint64_t lost = means_.mapping_events.lost();
  if (lost == mappings_lost_ || now - repaired_ < kRepairPause) return;
  mappings_lost_ = lost;
  repaired_ = now;
  means_.spaces.DropEnded();
  for (const auto& [process_id, target] : means_.targets) {
    if (!target.ending.has_value()) AddNewcomer(target.pid);
  }
  // A process may have mapped an allocator that is not attached yet.
  RecordRunningProcesses();
}

void Everyone::LookAt(pid_t pid) {
  if (Target* const target = means_.targets.FindRunning(pid); target != nullptr) {
    Inspect(*target);
  } else if (!options_.system_wide->shall_end) {  // then the recording's control groups are unknown, too
    TryToRecord(pid);
  }
}

// Some processes mapped the file before the probes were attached. They enter when they hit a probe, but those that no
// longer allocate must be recorded too.
void Everyone::RecordMapping(const elf::Mapping& file) {
  for (const pid_t pid : means_.spaces.ProcessesMapping(file)) {
    const Target* target = means_.targets.FindRunning(pid);
    // A target that has not started is recorded since an exec, but its heaptap:start was missed.
    if (target == nullptr || !target->image->has_started) AddNewcomer(pid);
  }
}

}  // namespace heaptap::recording
