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
#include "userspace/recording/budget.h"

namespace heaptap::recording {
namespace {

// At the end of a recording, for the processes that still wait to be looked at.
constexpr absl::Duration kEndPatience = absl::Seconds(10);

// For the looks at the processes that are running when the recording begins: no user can delay the start for longer.
constexpr absl::Duration kFirstPatience = absl::Milliseconds(1500);

// Between two looks at all processes. Under a flood of mappings each would find that events were lost again.
constexpr absl::Duration kRepairPause = absl::Seconds(2);

// Of a process that an earlier recorder has left, until it is looked at.
constexpr absl::string_view kUnknownName = "?";

// What the books say now, and what has changed since the last time.
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
    : books_(means.books),
      looks_(means.looks),
      orders_(means.orders),
      errands_(means.errands),
      targets_(means.targets),
      spaces_(means.spaces),
      controls_(means.controls),
      allocators_(means.allocators),
      unwinding_(means.unwinding),
      dumps_(means.dumps),
      requests_(means.requests),
      endings_(means.endings),
      mapping_events_(means.mapping_events),
      groups_(means.groups),
      options_(options),
      record_running_(std::move(calls.record_running)),
      pump_(std::move(calls.pump)),
      readings_(means.readings),
      rates_(targets_, controls_),
      upkeep_(
          {.books = books_, .orders = orders_, .targets = targets_, .dumps = dumps_, .background = means.background}) {}

void Everyone::Fail(const absl::Status& status) {
  failed_ = true;
  base::Say(status.message());
}

absl::Status Everyone::Restrict() {
  for (const std::string& folder : groups_.Missing()) {
    base::Say(absl::StrCat("there is no control group ", base::Printable(folder), " yet; waiting for it"));
  }
  return UseGroups();
}

absl::Status Everyone::UseGroups() {
  if (absl::Status status = books_.processes().RestrictTo(groups_.fds()); !status.ok()) return status;
  return SetDefaults();
}

void Everyone::RefreshGroups() {
  const std::vector<process::ControlGroups::Change> changes = groups_.Refresh();
  if (changes.empty()) return;
  // Without mapping events of a group, its processes still enter when they hit a probe.
  for (const auto& [before, now] : changes) {
    if (absl::Status status = mapping_events_.ReplaceGroup(before, now); !status.ok()) Fail(status);
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

void Everyone::TellRate() { allocators_.TellRate(FirstRate()); }

// The settings of a process until its start event is handled and the rules are applied.
absl::Status Everyone::SetDefaults() {
  const Policy& policy = options_.policy;
  return books_.processes().SetSettings(
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
  endings_.ForgetClosedByPredecessor();
  absl::StatusOr<std::map<uint64_t, bpf::RecordedProcess>> processes = books_.processes().ReadAll();
  if (!processes.ok()) return Fail(processes.status());
  for (const auto& [process_id, recorded] : *processes) {
    if ((recorded.process.flags & HEAPTAP_PROCESS_IGNORED) != 0) continue;
    Target& target = targets_.Add(process_id, recorded.tgid, options_.policy);
    target.name = std::string(kUnknownName);
    target.books.begun = base::Instant::FromNanoseconds(recorded.process.identity.start_time);
    target.books.since = base::ToWall(target.books.begun);
    if (absl::StatusOr<TargetState> state = states_->Load(process_id); state.ok()) {
      const base::Instant begun = target.books.begun;
      targets_.Restore(target, std::move(state->target));
      target.books.begun = begun;
      target.books.is_saved = true;
      target.books.mappings_saved = base::Instant::FromNanoseconds(state->saved);
      spaces_.Keep(target.pid, std::move(state->space));
    }
    newcomers_.Add(target.pid);
    if (!target.started) continue;
    // At once: a process that still names an earlier, dead collector gives up its next dump.
    ApplyPolicy(target, [this](Target& now) {
      if (!now.policy.record || now.control_address == 0) return;
      controls_.FindAndTake(now, {now.control_address}, [](const absl::Status&) {});
    });
  }
  pump_();
  endings_.FindAllUnnoticedEnds();
  endings_.FinishOrphans(pump_);
  base::Say(
      absl::StrCat("took over a recording of ", targets_.size(), targets_.size() == 1 ? " process" : " processes"));
  if (!options_.system_wide->shall_end && !books_.HasSizes(options_.map_sizes)) {
    base::Say(absl::StrCat("the maps keep their sizes; to change them, end the recording first: ",
                           options_.system_wide->end_command));
  }
}

void Everyone::RecordRunningProcesses() {
  const absl::StatusOr<std::vector<pid_t>> pids = process::ListProcesses();
  if (!pids.ok()) {
    // Those that no longer allocate would never be seen.
    if (!std::exchange(shall_list_again_, true)) base::Say(absl::StrCat(pids.status().message(), "; trying again"));
    return;
  }
  shall_list_again_ = false;
  for (const pid_t pid : *pids) {
    if (targets_.FindRunning(pid) == nullptr) newcomers_.Add(pid);
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
  Target& target = targets_.Add(event.process_id, event.tgid, options_.policy);
  target.name = base::AsciiOnly(absl::string_view(event.comm, strnlen(event.comm, sizeof(event.comm))));
  target.books.is_saved = false;
  newcomers_.Add(target.pid);
  readings_.Want(target);
  // An earlier target with this PID must have ended.
  for (const uint64_t process_id : targets_.WithPid(target.pid)) {
    Target& before = *targets_.Find(process_id);
    if (process_id != event.process_id && !before.ending.has_value()) endings_.EndUnseen(before);
  }
  spaces_.Hold(event.tgid);
}

void Everyone::InspectNewcomers() {
  for (const uint64_t process_id : std::exchange(ignored_, {})) endings_.Close(process_id);
  readings_.ReadWanted();
  newcomers_.Look([this](pid_t pid) { return looks_.HasRoom(pid); }, [this](pid_t pid) { LookAt(pid); });
}

void Everyone::InspectFirst() {
  const auto is_over = [this] {
    InspectNewcomers();
    return HasInspected();
  };
  looks_.WaitUntil(is_over, base::Now() + kFirstPatience);
}

void Everyone::SaveAllStates() {
  if (states_ != nullptr) upkeep_.SaveAllStates(*states_);
}

bool Everyone::HasInspected() {
  // Files that are being read make another look necessary.
  errands_.HandleDone();
  orders_.HandleDone();
  return newcomers_.empty() && looks_.IsIdle() && orders_.IsIdle() && !allocators_.IsWaiting();
}

void Everyone::InspectAll() {
  const auto look = [this](pid_t pid) {
    if (Target* const target = targets_.FindRunning(pid); target != nullptr) Inspect(*target);
  };
  const auto is_over = [&] {
    newcomers_.Look([this](pid_t pid) { return looks_.HasRoom(pid); }, look);
    return HasInspected();
  };
  looks_.WaitUntil(is_over, base::Now() + kEndPatience);
}

void Everyone::Inspect(const Target& target) {
  // From now on its mapping events count.
  if (spaces_.Find(target.pid) == nullptr) spaces_.Keep(target.pid, {});
  allocators_.Inspect(target.pid, [this, id = target.process_id](absl::StatusOr<Inspection> inspection) {
    HandleInspected(id, std::move(inspection));
  });
}

void Everyone::HandleInspected(uint64_t process_id, absl::StatusOr<Inspection> inspection) {
  Target* const found = targets_.Find(process_id);
  if (found == nullptr || found->ending.has_value()) return;
  Target& target = *found;
  if (!inspection.ok()) return HandleTried(target.pid, inspection.status());
  if (inspection->is_pending) return;
  for (const auto& [file, mapping] : inspection->all) unwinding_.tables().PrepareMapped(file, mapping);
  if (!books_.processes().IsCurrent(target.pid, target.process_id)) return;
  if (target.name == kUnknownName) target.name = base::AsciiOnly(inspection->facts.command);
  const base::Instant known = target.books.mappings_saved.value_or(target.books.begun);
  spaces_.Update(target.pid, inspection->space, known.nanoseconds());
  target.books.is_saved = false;
  if (!allocators_.HasAttached(*inspection)) return;
  if (!std::exchange(target.started, true)) SetPolicy(target, inspection->facts);
  if (!target.policy.record || inspection->control_addresses.empty()) return HandleTried(target.pid, absl::OkStatus());
  controls_.FindAndTake(target, inspection->control_addresses, [this, pid = target.pid](const absl::Status& taken) {
    HandleTried(pid, worker::MayPass(taken) ? taken : absl::OkStatus());
  });
}

void Everyone::ApplyPolicy(Target& target, Then then) {
  const std::optional<Rules>& rules = options_.system_wide->rules;
  process::Facts facts;
  facts.pid = target.pid;
  facts.command = target.name;
  if (!rules.has_value() || !rules->needs_facts()) {
    SetPolicy(target, facts);
    return then(target);
  }
  // Its policy if it ends before it is read.
  target.policy = rules->Find(facts);
  target.awaits_policy = true;
  without_facts_[target.process_id].push_back(std::move(then));
  readings_.Want(target);
}

void Everyone::HandleRead(Target& target, const process::Facts* facts) {
  requests_.NoteUser(target);
  if (!std::exchange(target.awaits_policy, false)) return;
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
  } else if (target.policy.record && target.control_address != 0) {
    // It has other books since then (prof.reset).
    controls_.FindAndTake(target, {target.control_address}, [](const absl::Status&) {});
  }
}

void Everyone::SetPolicy(Target& target, const process::Facts& facts) {
  readings_.Want(target);
  Configure(target, facts);
}

void Everyone::Configure(Target& target, const process::Facts& facts) {
  if (const std::optional<Rules>& rules = options_.system_wide->rules; rules.has_value()) {
    target.policy = rules->Find(facts);
  }
  const Policy& policy = target.policy;
  const absl::Status status = books_.processes().Configure(target.pid, target.process_id,
                                                           {.ignored = !policy.record,
                                                            .max_live = policy.max_live,
                                                            .max_tallies = policy.max_contexts,
                                                            .triggers = policy.triggers});
  const bool is_refused = !status.ok() && !absl::IsNotFound(status);
  if (is_refused && !target.is_unconfigured) {
    Fail(absl::Status(status.code(), absl::StrCat(status.message(), "; its rule (", target.name,
                                                  ") does not hold until heaptap succeeds; it tries every second")));
  }
  target.is_unconfigured = is_refused;
  if (policy.record || is_refused) return;
  // Its entry in the kernel marks it as ignored until its next exec.
  ignored_.insert(target.process_id);
  if (!target.foreign) controls_.Release(target);
}

void Everyone::SetRules(Rules rules, const Policy& defaults, const Retention& retention, double budget) {
  options_.policy = defaults;
  options_.system_wide->rules = std::move(rules);
  options_.system_wide->budget = budget;
  dumps_.SetRetention(retention);
  if (absl::Status status = SetDefaults(); !status.ok()) Fail(status);
  TellRate();
  for (auto& [process_id, target] : targets_) {
    if (target.ending.has_value() || !target.started) continue;
    ApplyPolicy(target, [this](Target& now) {
      if (now.policy.record && !now.foreign) controls_.Write(now);
    });
  }
  RecordIgnored();
}

void Everyone::RecordIgnored() {
  const absl::StatusOr<std::map<uint64_t, bpf::RecordedProcess>> processes = books_.processes().ReadAll();
  if (!processes.ok()) return Fail(processes.status());
  for (const auto& [process_id, recorded] : *processes) {
    if ((recorded.process.flags & HEAPTAP_PROCESS_IGNORED) == 0 || ignored_.contains(process_id)) continue;
    books_.processes().Untrack(recorded.tgid);
    // With new books, because the old ones lack what happened meanwhile.
    newcomers_.Add(recorded.tgid);
  }
}

void Everyone::Tick(base::Instant now) {
  RefreshGroups();
  if (shall_list_again_) RecordRunningProcesses();
  std::erase_if(failed_looks_, [&](pid_t pid) {
    const bool is_due = looks_again_.IsDue(pid, now);
    if (is_due) newcomers_.Add(pid);
    return is_due;
  });
  const absl::StatusOr<std::map<uint64_t, bpf::RecordedProcess>> processes = books_.processes().ReadAll();
  if (!processes.ok()) return Fail(processes.status());
  for (const auto& [process_id, recorded] : *processes) {
    Target* target = targets_.Find(process_id);
    if (target == nullptr) continue;
    const bool is_new = target->books.last.time == base::Instant::InfinitePast();
    // Once more, when it has settled.
    if (is_new || !target->facts.is_known() || target->awaits_policy) readings_.Want(*target);
    if (is_new) {
      // Recorded since its exec or its parent's fork, but its allocator was attached after heaptap:start.
      if (!target->started) newcomers_.Add(target->pid);
    }
    Measure(target->books, recorded.process, now);
  }
  std::erase_if(without_facts_, [this](const auto& waiting) { return targets_.Find(waiting.first) == nullptr; });
  endings_.EndMissing(*processes);
  for (auto& [process_id, target] : targets_) {
    if (target.ending.has_value()) continue;
    if (target.is_unconfigured) ApplyPolicy(target);
    if (target.is_unwritten && target.policy.record && !target.foreign) controls_.Write(target);
  }
  RepairSpaces(now);
  rates_.Keep(now, options_.system_wide->budget);
  for (auto& [process_id, target] : targets_) {
    if (!target.ending.has_value()) requests_.HandleDueTrigger(target, now);
    const absl::Duration every = target.policy.every;
    if (target.ending.has_value() || every <= absl::ZeroDuration() || now - target.dumped < every) continue;
    target.dumped = now;
    if (dumps_.HasProfile(target)) dumps_.Write(target, HEAPTAP_DUMP_INTERVAL);
  }
  if (dumps_.RenewFolder()) {
    for (auto& [process_id, target] : targets_) target.books.is_saved = false;
  }
  if (states_ != nullptr) upkeep_.SaveStates(*states_, now);
  allocators_.Release(now);
  errands_.EndIdle(now);
  looks_.EndIdle(now);
  orders_.EndIdle(now);
  dumps_.Prune(base::WallNow());
  upkeep_.FoldWhenFull(*processes, std::min(options_.map_sizes.tallies, options_.map_sizes.stacks), now);
}

// Any process can map files so fast that mapping events of all processes are lost.
void Everyone::RepairSpaces(base::Instant now) {
  const uint64_t lost = mapping_events_.lost();
  if (lost == mappings_lost_ || now - repaired_ < kRepairPause) return;
  mappings_lost_ = lost;
  repaired_ = now;
  spaces_.DropEnded();
  for (const auto& [process_id, target] : targets_) {
    if (!target.ending.has_value()) newcomers_.Add(target.pid);
  }
  // A process may have mapped an allocator that is not attached yet.
  RecordRunningProcesses();
}

void Everyone::LookAt(pid_t pid) {
  Target* const target = targets_.FindRunning(pid);
  if (target == nullptr) {
    TryToRecord(pid);
  } else {
    Inspect(*target);
  }
}

// Some processes mapped the file before the probes were attached. They enter when they hit a probe, but those that no
// longer allocate must be recorded too.
void Everyone::RecordMapping(const elf::Mapping& file) {
  for (const pid_t pid : spaces_.ProcessesMapping(file)) {
    const Target* target = targets_.FindRunning(pid);
    // A target that has not started is recorded since an exec, but its heaptap:start was missed.
    if (target == nullptr || !target->started) newcomers_.Add(pid);
  }
}

}  // namespace heaptap::recording
