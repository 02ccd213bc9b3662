// SPDX-License-Identifier: Apache-2.0
#include "userspace/recording/queries.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/process/control_block.h"
#include "userspace/process/facts.h"
#include "userspace/profile/estimate.h"

namespace heaptap::recording {
namespace {

// The summaries of dozens of processes with hundreds of call paths.
constexpr absl::Duration kQuickSummaries = absl::Milliseconds(10);

// Each reading opens the memory of every process.
constexpr absl::Duration kActiveInterval = absl::Seconds(1);

absl::Status NoControlBlock(pid_t pid) {
  return absl::FailedPreconditionError(
      absl::StrCat("process ", pid, " has no control block: its allocator is not libheaptap.so"));
}

absl::Status NoTime(const Target& target) {
  return absl::ResourceExhaustedError(absl::StrCat("too many profiles of the user of process ", target.pid,
                                                   " were asked for; try again in some seconds"));
}

absl::Status NotSettled(const Target& target) {
  return absl::ResourceExhaustedError(
      absl::StrCat("stacks of process ", target.pid, " still wait for unwind tables; try again in some seconds"));
}

}  // namespace

void Queries::ForgetSummaries(absl::Time now) {
  // While summaries take long, they are made for a tenth of the time.
  if (summaries_cost_ < kQuickSummaries || now - summaries_made_ > 10 * summaries_cost_) summaries_.reset();
}

absl::StatusOr<Target*> Queries::FindForClient(const profile::ProcessRef& process) {
  Target* target = targets_.Find(process.process_id);
  const bool is_it = target != nullptr && target->pid == process.pid && !target->ending.has_value();
  const bool is_there = is_it && target->policy.record && dumps_.HasProfile(*target);
  if (is_there && books_.processes().IsCurrent(process.pid, process.process_id)) return target;
  return absl::NotFoundError(absl::StrCat("process ", process.pid, " is not recorded"));
}

std::optional<profile::ProcessRef> Queries::FindProcess(pid_t pid) {
  const Target* target = targets_.FindRunning(pid);
  if (target == nullptr) return std::nullopt;
  return profile::ProcessRef{target->pid, target->process_id};
}

profile::ProcessSummary Queries::Summarise(const Target& target, const std::vector<bpf::TallyEntry>& tallies) {
  profile::ProcessSummary summary;
  summary.pid = target.pid;
  summary.process_id = target.process_id;
  summary.command = target.name;
  if (const AddressSpace* space = dumps_.Space(target); space != nullptr) summary.executable = space->executable;
  summary.service = target.service;
  summary.control_group = target.control_group;
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
    const absl::StatusOr<process::Facts> facts = hands_.Facts(target.pid);
    // Checked after the owner was read: the PID may have been reused before.
    const absl::StatusOr<heaptap_process> process = books_.processes().Read(target.pid);
    if (process.ok() && process->identity.id == target.process_id) {
      if (facts.ok()) summary.owner = facts->owner;
      summary.peak_bytes = static_cast<double>(process->figures.peak_weight);
    }
  }
  summary.peak_bytes = std::max(summary.peak_bytes, summary.live_bytes);
  summary.lg_sample = target.LgSample();
  if (!target.ending.has_value()) summary.active = target.active;
  summary.allocator = target.allocator_name;
  const bpf::Losses losses = books_.entries().ReadLosses(target.process_id);
  for (uint32_t reason = HEAPTAP_NO_LOSS + 1; reason < losses.size(); reason++) {
    if (losses[reason].events != 0) summary.losses[std::string(bpf::LossName(reason))] = losses[reason].events;
  }
  return summary;
}

const std::vector<profile::ProcessSummary>& Queries::Summaries() {
  if (summaries_.has_value()) return *summaries_;
  summaries_made_ = absl::Now();
  summaries_ = MakeSummaries();
  summaries_cost_ = absl::Now() - summaries_made_;
  return *summaries_;
}

std::vector<profile::ProcessSummary> Queries::MakeSummaries() {
  std::vector<profile::ProcessSummary> summaries;
  for (const auto& [process_id, target] : targets_) dumps_.TakeFrees(target);
  absl::StatusOr<std::map<uint64_t, std::vector<bpf::TallyEntry>>> tallies = books_.entries().ReadAllTallies();
  if (!tallies.ok()) return summaries;
  if (const absl::Time now = absl::Now(); now - active_read_ >= kActiveInterval) {
    active_read_ = now;
    for (auto& [process_id, target] : targets_) {
      controls_.ReadActive(target);
      requests_.NoteOwner(target);
    }
  }
  for (const auto& [process_id, target] : targets_) {
    const std::vector<bpf::TallyEntry>& own = (*tallies)[process_id];
    if (target.ending.has_value() || !target.policy.record || !dumps_.HasProfile(target, !own.empty())) continue;
    summaries.push_back(Summarise(target, own));
  }
  std::sort(summaries.begin(), summaries.end(),
            [](const profile::ProcessSummary& a, const profile::ProcessSummary& b) { return a.pid < b.pid; });
  return summaries;
}

absl::StatusOr<std::optional<uid_t>> Queries::Owner(const profile::ProcessRef& process) {
  absl::StatusOr<Target*> target = FindForClient(process);
  if (!target.ok()) return target.status();
  // As of now: the process may have changed its user.
  requests_.NoteOwner(**target);
  return (*target)->owner;
}

absl::StatusOr<Target*> Queries::FindForProfile(const profile::ProcessRef& process) {
  absl::StatusOr<Target*> target = FindForClient(process);
  if (!target.ok()) return target.status();
  if (!requests_.HasTime(**target)) return NoTime(**target);
  if (!requests_.IsSettled(**target)) return NotSettled(**target);
  return target;
}

absl::StatusOr<profile::ResidentBytes> Queries::ResidentOf(const Target& target) {
  absl::StatusOr<profile::ResidentBytes> resident = hands_.Residency(target.pid);
  // Checked afterwards: the PID may have been reused meanwhile.
  if (books_.processes().IsCurrent(target.pid, target.process_id)) return resident;
  return absl::NotFoundError(absl::StrCat("process ", target.pid, " is not recorded"));
}

std::vector<profile::CoveragePart> Queries::CoverageOf(Target& target, double live) {
  std::optional<heaptap_statistics> statistics;
  if (target.control_address != 0) {
    const absl::StatusOr<heaptap_control> control = controls_.Order(target, worker::ControlVerb::kRead);
    if (control.ok() && !process::IsGuest(*control)) statistics = control->statistics;
  }
  const absl::StatusOr<profile::ResidentBytes> resident = ResidentOf(target);
  if (!resident.ok()) return {};
  return profile::Cover(*resident, statistics.has_value() ? &*statistics : nullptr, live);
}

absl::Status Queries::MayRead(const profile::ProcessRef& process) {
  const absl::StatusOr<Target*> target = FindForProfile(process);
  if (target.ok()) dumps_.TakeFrees(**target);
  return target.status();
}

absl::StatusOr<profile::Snapshot> Queries::Snapshot(const profile::ProcessRef& process, const LiveBlocks* blocks) {
  absl::StatusOr<Target*> target = FindForProfile(process);
  if (!target.ok()) return target.status();
  const absl::Time begin = absl::Now();
  absl::StatusOr<profile::Profile> profile = dumps_.Build(**target, blocks);
  profile::Snapshot snapshot;
  if (blocks != nullptr && profile.ok()) snapshot.coverage = CoverageOf(**target, profile->Live().bytes);
  requests_.Charge(**target, begin - (blocks == nullptr ? absl::ZeroDuration() : blocks->cost));
  if (!profile.ok()) return profile.status();
  snapshot.profile = *std::move(profile);
  snapshot.process_id = (*target)->process_id;
  if (const AddressSpace* space = dumps_.Space(**target); space != nullptr) snapshot.executable = space->executable;
  snapshot.time = absl::Now();
  return snapshot;
}

absl::StatusOr<std::string> Queries::DumpOne(const profile::ProcessRef& process) {
  absl::StatusOr<Target*> target = FindForProfile(process);
  if (!target.ok()) return target.status();
  const absl::Time begin = absl::Now();
  absl::StatusOr<std::string> path = dumps_.Write(**target, HEAPTAP_DUMP_MANUAL);
  requests_.Charge(**target, begin);
  return path;
}

absl::StatusOr<profile::AllocatorFigures> Queries::ReadAllocatorFigures(const profile::ProcessRef& process) {
  absl::StatusOr<Target*> target = FindForClient(process);
  if (!target.ok()) return target.status();
  if ((*target)->control_address == 0) return NoControlBlock(process.pid);
  const absl::StatusOr<heaptap_control> control = controls_.Order(**target, worker::ControlVerb::kRead);
  if (!control.ok()) return control.status();
  profile::AllocatorFigures figures = process::AllocatorFiguresOf(*control);
  figures.lg_sample = (*target)->LgSample();
  return figures;
}

absl::StatusOr<profile::ResidentBytes> Queries::Resident(const profile::ProcessRef& process) {
  absl::StatusOr<Target*> target = FindForClient(process);
  if (!target.ok()) return target.status();
  if (!requests_.HasTime(**target)) return NoTime(**target);
  const absl::Time begin = absl::Now();
  absl::StatusOr<profile::ResidentBytes> resident = ResidentOf(**target);
  requests_.Charge(**target, begin);
  return resident;
}

absl::Status Queries::SetActive(const profile::ProcessRef& process, bool active) {
  absl::StatusOr<Target*> target = FindForClient(process);
  if (!target.ok()) return target.status();
  if ((*target)->control_address == 0) return NoControlBlock(process.pid);
  absl::Status status = controls_.Order(**target, worker::ControlVerb::kActive, active ? 1 : 0).status();
  if (status.ok()) (*target)->active = active;
  summaries_.reset();
  return status;
}

absl::Status Queries::SetRate(const profile::ProcessRef& process, std::optional<uint32_t> lg_sample) {
  absl::StatusOr<Target*> target = FindForClient(process);
  if (!target.ok()) return target.status();
  if ((*target)->control_address == 0) return NoControlBlock(process.pid);
  if ((*target)->foreign) {
    return absl::FailedPreconditionError(absl::StrCat("another collector controls the rate of process ", process.pid));
  }
  if (!(*target)->reachable) {
    return absl::UnavailableError(absl::StrCat("process ", process.pid, " does not give access to its memory"));
  }
  (*target)->asked_lg_sample = lg_sample;
  summaries_.reset();
  // Use exactly this rate for now; the budget may raise it again later.
  (*target)->raised = 0;
  controls_.Write(**target);
  return absl::OkStatus();
}

profile::CollectorFigures Queries::Figures(const profile::CountsByName& events) {
  profile::CollectorFigures figures;
  figures.version = HEAPTAP_VERSION;
  figures.revision = books_.layout();
  figures.processes = Summaries();
  figures.events = events;
  const bpf::Losses losses = books_.entries().ReadLosses(0);
  for (uint32_t reason = HEAPTAP_NO_LOSS + 1; reason < losses.size(); reason++) {
    figures.losses[std::string(bpf::LossName(reason))] = losses[reason].events;
  }
  dumps_.AddFigures(figures);
  for (const auto& [map, bytes] : books_.KernelMemory()) figures.kernel_memory_bytes += bytes;
  figures.ring_fill_ratio = books_.EventsFill();
  return figures;
}

std::optional<profile::ProcessRef> Queries::LargestProcess() {
  const std::vector<profile::ProcessSummary>& summaries = Summaries();
  const auto largest = std::max_element(
      summaries.begin(), summaries.end(),
      [](const profile::ProcessSummary& a, const profile::ProcessSummary& b) { return a.live_bytes < b.live_bytes; });
  if (largest == summaries.end()) return std::nullopt;
  return largest->ref();
}

}  // namespace heaptap::recording
