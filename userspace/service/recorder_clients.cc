// SPDX-License-Identifier: Apache-2.0
//
// Access to the control blocks of targets, and the answers to clients of a system-wide recording (collector.h).
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/service/control_block.h"
#include "userspace/service/messages.h"
#include "userspace/service/process_handle.h"
#include "userspace/service/recorder.h"

namespace heaptap::service {
namespace {

// Each reading opens the memory of every process.
constexpr absl::Duration kActiveInterval = absl::Seconds(1);

}  // namespace

void Recorder::UseControl(Target& target, const heaptap_control& control, uint64_t address) {
  target.started = true;
  target.control_address = address;
  const ControlFacts facts = FactsOf(control);
  target.allocator = facts.allocator;
  target.max_frames = facts.max_frames;
  target.raw = facts.raw;
  target.own_lg_sample = facts.lg_sample;
  // A system-wide recording includes processes that another collector records, but leaves them in that one's control.
  target.active = control.active != 0;
  target.other_collector = options_.system_wide.has_value() ? OtherCollector(control) : 0;
  target.foreign = target.other_collector != 0;
  if (target.foreign && collectors_reported_.size() < kMaxCollectorsReported &&
      collectors_reported_.insert(target.other_collector).second) {
    Say(absl::StrCat("process ", target.pid, " (", target.name, ") is also recorded by heaptap process ",
                     target.other_collector, ", which sets its rate, answers its requests and writes its last dump"));
  }
  const bool is_up_to_date = control.collector_pid == static_cast<uint32_t>(getpid()) &&
                             control.collector_lg_sample == target.CollectorRate() && control.collector_follows != 0;
  if (!target.foreign && !is_up_to_date) WriteControl(target);
}

absl::Status Recorder::WithMemory(Target& target, std::function<absl::Status(const ProcessHandle&)> work) {
  const auto failure = [&] {
    return absl::UnavailableError(absl::StrCat("process ", target.pid, " does not give access to its memory"));
  };
  // Without room the target is not to blame, and stays reachable.
  if (!target.reachable || !target_memory_.HasRoom()) return failure();
  absl::StatusOr<ProcessHandle> handle = Open(target.pid, target.process_id);
  if (!handle.ok()) return handle.status();
  auto shared = std::make_shared<ProcessHandle>(*std::move(handle));
  auto status = std::make_shared<absl::Status>();
  if (target_memory_.Run([work = std::move(work), shared, status] { *status = work(*shared); })) return *status;
  target.reachable = false;
  Say(absl::StrCat(failure().message(), " within ", absl::FormatDuration(BoundedWork::kLimit),
                   "; heaptap will not try again"));
  return failure();
}

void Recorder::WriteControl(Target& target) {
  if (target.control_address == 0) return;
  // Fails if the process has ended; then it does not matter.
  WithMemory(target, [address = target.control_address, rate = target.CollectorRate(),
                      follows = options_.follow](const ProcessHandle& handle) {
    return TakeControl(handle, address, rate, follows);
  }).IgnoreError();
}

absl::StatusOr<Target*> Recorder::FindForClient(pid_t pid) {
  Target* target = FindRunning(pid);
  const bool is_there = target != nullptr && target->policy.record && HasProfile(*target);
  if (is_there && books_->IsCurrent(pid, target->process_id)) return target;
  return absl::NotFoundError(absl::StrCat("process ", pid, " is not recorded"));
}

ProcessSummary Recorder::Summarise(const Target& target, const std::vector<bpf::TallyEntry>& tallies) const {
  ProcessSummary summary;
  summary.pid = target.pid;
  summary.process_id = target.process_id;
  summary.command = target.name;
  if (const AddressSpace* space = Space(target); space != nullptr) summary.executable = space->executable;
  summary.recorded_since = target.since;
  std::set<uint64_t> stacks;
  for (const bpf::TallyEntry& entry : tallies) {
    const profile::Estimate allocated = profile::ToEstimate(entry.tally.allocated);
    const profile::Estimate live = profile::LiveEstimate(entry.tally);
    summary.live_bytes += live.bytes;
    summary.live_objects += live.objects;
    summary.allocated_bytes += allocated.bytes;
    summary.allocated_objects += allocated.objects;
    summary.samples += allocated.samples;
    stacks.insert(entry.stack_id);
  }
  summary.contexts = stacks.size();
  if (target.ending.has_value()) {
    summary.owner = target.owner;
    summary.peak_bytes = static_cast<double>(target.ending->peak);
  } else {
    summary.allocation_rate = target.allocation_rate;
    summary.owner = ProcessOwner(target.pid);
    // Checked after the owner was read: the PID may have been reused before.
    const absl::StatusOr<heaptap_process> process = books_->ReadProcess(target.pid);
    if (!process.ok() || process->identity.id != target.process_id) {
      summary.owner.reset();
    } else {
      summary.peak_bytes = static_cast<double>(process->figures.peak_weight);
    }
  }
  summary.peak_bytes = std::max(summary.peak_bytes, summary.live_bytes);
  summary.lg_sample = target.LgSample();
  if (!target.ending.has_value()) summary.active = target.active;
  const bpf::Losses losses = books_->ReadLosses(target.process_id);
  for (uint32_t reason = HEAPTAP_NO_LOSS + 1; reason < losses.size(); reason++) {
    if (losses[reason].events != 0) summary.losses[std::string(bpf::LossName(reason))] = losses[reason].events;
  }
  return summary;
}

const std::vector<ProcessSummary>& Recorder::Summaries() {
  if (!summaries_.has_value()) summaries_ = MakeSummaries();
  return *summaries_;
}

// Remembers the owner for the time after the process's end. A process whose owner ever changed belongs to root only.
void Recorder::NoteOwner(Target& target) {
  if (target.ending.has_value()) return;
  const std::optional<uid_t> owner = ProcessOwner(target.pid);
  if (!books_->IsCurrent(target.pid, target.process_id)) return;
  const bool is_same = !target.owner_known || target.owner == owner;
  target.owner = is_same ? owner : std::nullopt;
  target.owner_known = true;
}

// A process switches prof.active without an event.
void Recorder::ReadActive(Target& target) {
  if (target.ending.has_value() || target.control_address == 0) return;
  auto active = std::make_shared<std::optional<bool>>();
  WithMemory(target, [active, address = target.control_address](const ProcessHandle& handle) {
    absl::StatusOr<heaptap_control> control = ReadControl(handle, address);
    if (control.ok()) *active = control->active != 0;
    return control.status();
  }).IgnoreError();
  target.active = *active;
}

std::vector<ProcessSummary> Recorder::MakeSummaries() {
  std::vector<ProcessSummary> summaries;
  absl::StatusOr<std::map<uint64_t, std::vector<bpf::TallyEntry>>> tallies = books_->ReadAllTallies();
  if (!tallies.ok()) return summaries;
  if (const absl::Time now = absl::Now(); now - active_read_ >= kActiveInterval) {
    active_read_ = now;
    for (auto& [process_id, target] : targets_) {
      ReadActive(target);
      NoteOwner(target);
    }
  }
  for (const auto& [process_id, target] : targets_) {
    const std::vector<bpf::TallyEntry>& own = (*tallies)[process_id];
    if (target.ending.has_value() || !target.policy.record || !HasProfile(target, !own.empty())) continue;
    summaries.push_back(Summarise(target, own));
  }
  std::sort(summaries.begin(), summaries.end(),
            [](const ProcessSummary& a, const ProcessSummary& b) { return a.pid < b.pid; });
  return summaries;
}

absl::StatusOr<ProfileSnapshot> Recorder::Snapshot(pid_t pid) {
  absl::StatusOr<Target*> target = FindForClient(pid);
  if (!target.ok()) return target.status();
  absl::StatusOr<profile::Profile> profile = Build(**target);
  if (!profile.ok()) return profile.status();
  ProfileSnapshot snapshot;
  snapshot.profile = *std::move(profile);
  snapshot.process_id = (*target)->process_id;
  if (const AddressSpace* space = Space(**target); space != nullptr) snapshot.executable = space->executable;
  snapshot.time = absl::Now();
  return snapshot;
}

absl::StatusOr<std::string> Recorder::DumpOne(pid_t pid) {
  absl::StatusOr<Target*> target = FindForClient(pid);
  if (!target.ok()) return target.status();
  return Dump(**target, HEAPTAP_DUMP_MANUAL);
}

absl::StatusOr<AllocatorFigures> Recorder::ReadAllocatorFigures(pid_t pid) {
  absl::StatusOr<Target*> target = FindForClient(pid);
  if (!target.ok()) return target.status();
  const uint64_t address = (*target)->control_address;
  if (address == 0)
    return absl::FailedPreconditionError(
        absl::StrCat("process ", pid, " has no control block: its allocator is not libheaptap.so"));
  auto control = std::make_shared<heaptap_control>();
  absl::Status status = WithMemory(**target, [control, address](const ProcessHandle& handle) {
    absl::StatusOr<heaptap_control> read = ReadControl(handle, address);
    if (read.ok()) *control = *read;
    return read.status();
  });
  if (!status.ok()) return status;
  return AllocatorFigures{.options = control->options,
                          .active = control->active != 0,
                          .lg_sample = (*target)->LgSample(),
                          .statistics = control->statistics};
}

absl::Status Recorder::SetActive(pid_t pid, bool active) {
  absl::StatusOr<Target*> target = FindForClient(pid);
  if (!target.ok()) return target.status();
  const uint64_t address = (*target)->control_address;
  if (address == 0)
    return absl::FailedPreconditionError(
        absl::StrCat("process ", pid, " has no control block: its allocator is not libheaptap.so"));
  absl::Status status = WithMemory(
      **target, [address, active](const ProcessHandle& handle) { return WriteActive(handle, address, active); });
  if (status.ok()) (*target)->active = active;
  summaries_.reset();
  return status;
}

absl::Status Recorder::SetRate(pid_t pid, std::optional<uint32_t> lg_sample) {
  absl::StatusOr<Target*> target = FindForClient(pid);
  if (!target.ok()) return target.status();
  if ((*target)->control_address == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("process ", pid, " has no control block: its allocator is not libheaptap.so"));
  }
  if ((*target)->foreign) {
    return absl::FailedPreconditionError(absl::StrCat("another collector controls the rate of process ", pid));
  }
  if (!(*target)->reachable) {
    return absl::UnavailableError(absl::StrCat("process ", pid, " does not give access to its memory"));
  }
  (*target)->asked_lg_sample = lg_sample;
  summaries_.reset();
  // Use exactly this rate for now; the budget may raise it again later.
  (*target)->raised = 0;
  WriteControl(**target);
  return absl::OkStatus();
}

exporter::CollectorFigures Recorder::Figures() {
  exporter::CollectorFigures figures;
  figures.version = HEAPTAP_VERSION;
  figures.revision = bpf::Books::Layout();
  for (const ProcessSummary& summary : Summaries()) {
    exporter::ProcessFigures& process = figures.processes.emplace_back();
    process.pid = summary.pid;
    process.command = summary.command;
    process.live.bytes = summary.live_bytes;
    process.live.objects = summary.live_objects;
    process.allocated.bytes = summary.allocated_bytes;
    process.allocated.objects = summary.allocated_objects;
    process.allocated.samples = summary.samples;
    process.peak_bytes = static_cast<uint64_t>(summary.peak_bytes);
    process.period = uint64_t{1} << summary.lg_sample;
    process.contexts = summary.contexts;
    process.losses = summary.losses;
  }
  figures.events = events_counted_;
  const bpf::Losses losses = books_->ReadLosses(0);
  for (uint32_t reason = HEAPTAP_NO_LOSS + 1; reason < losses.size(); reason++) {
    figures.losses[std::string(bpf::LossName(reason))] = losses[reason].events;
  }
  figures.dumps = dumps_counted_;
  figures.dump_errors = dump_errors_;
  figures.dump_time = dump_time_;
  figures.last_dump = last_dump_;
  for (const auto& [map, bytes] : books_->KernelMemory()) figures.kernel_memory_bytes += bytes;
  figures.ring_fill_ratio = books_->EventsFill();
  return figures;
}

pid_t Recorder::LargestProcess() {
  const std::vector<ProcessSummary>& summaries = Summaries();
  const auto largest =
      std::max_element(summaries.begin(), summaries.end(),
                       [](const ProcessSummary& a, const ProcessSummary& b) { return a.live_bytes < b.live_bytes; });
  return largest == summaries.end() ? 0 : largest->pid;
}

}  // namespace heaptap::service
