// SPDX-License-Identifier: Apache-2.0
#include "userspace/recording/queries.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/bounds.h"
#include "userspace/base/clock.h"
#include "userspace/base/repeated_task.h"
#include "userspace/process/control_block.h"
#include "userspace/process/facts.h"
#include "userspace/process/memory_use.h"

namespace heaptap::recording {
namespace {

// The summaries of dozens of processes with hundreds of call paths.
constexpr absl::Duration kQuickSummaries = absl::Milliseconds(10);

// Summaries wait this long for the frees that processes hold back.
constexpr absl::Duration kFreesPatience = absl::Milliseconds(100);

// Each reading opens the memory of every process.
constexpr absl::Duration kActiveInterval = absl::Seconds(1);

absl::Status NoControlBlock(pid_t pid) {
  return absl::FailedPreconditionError(
      absl::StrCat("process ", pid, " has no control block: its allocator is not libheaptap.so"));
}

// A client need not know that hands were late for a moment: the question is asked again.
absl::Status AskAgainIfItMayPass(const absl::Status& status) {
  return worker::MayPass(status) ? absl::ResourceExhaustedError(status.message()) : status;
}

absl::Status NotSettled(const Target& target) {
  return absl::ResourceExhaustedError(
      absl::StrCat("stacks of process ", target.pid, " still wait for unwind tables; try again in some seconds"));
}

}  // namespace

void Queries::ForgetSummaries(base::Instant now) {
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

profile::ProcessSummary Queries::Summarise(const Target& target, const TallySums& sums) {
  return Summarise(target, sums, books_.entries().ReadLosses(target.process_id));
}

profile::ProcessSummary Queries::Summarise(const Target& target, const TallySums& sums, const bpf::Losses& losses) {
  profile::ProcessSummary summary;
  summary.pid = target.pid;
  summary.process_id = target.process_id;
  summary.command = target.name;
  if (const AddressSpace* space = dumps_.Space(target); space != nullptr) summary.executable = space->executable;
  summary.service = target.service;
  summary.control_group = target.control_group;
  summary.recorded_since = target.books.since;
  summary.live_bytes = sums.live.bytes;
  summary.live_objects = sums.live.objects;
  summary.allocated_bytes = sums.allocated.bytes;
  summary.allocated_objects = sums.allocated.objects;
  summary.samples = sums.allocated.samples;
  summary.contexts = sums.contexts;
  summary.owner = target.owner;
  if (target.ending.has_value()) {
    summary.peak_bytes = static_cast<double>(target.ending->peak);
  } else {
    summary.allocation_rate = target.books.allocation_rate;
    const absl::StatusOr<heaptap_process> process = books_.processes().Read(target.pid);
    if (process.ok() && process->identity.id == target.process_id) {
      summary.peak_bytes = static_cast<double>(process->figures.peak_weight);
    }
  }
  summary.peak_bytes = std::max(summary.peak_bytes, summary.live_bytes);
  summary.lg_sample = target.LgSample();
  if (!target.ending.has_value()) summary.active = target.active;
  summary.allocator = target.allocator_name;
  for (uint32_t reason = HEAPTAP_NO_LOSS + 1; reason < losses.size(); reason++) {
    if (losses[reason].events != 0) summary.losses[std::string(bpf::LossName(reason))] = losses[reason].events;
  }
  return summary;
}

// One question for all processes, which no process can delay.
void Queries::AddResidentBytes(std::vector<profile::ProcessSummary>& summaries) {
  std::vector<uint32_t> pids;
  pids.reserve(summaries.size());
  for (const profile::ProcessSummary& summary : summaries) pids.push_back(static_cast<uint32_t>(summary.pid));
  const std::map<uint32_t, process::MemoryUse> uses = hands_.MemoryUse(pids);
  for (profile::ProcessSummary& summary : summaries) {
    const auto found = uses.find(static_cast<uint32_t>(summary.pid));
    // Checked afterwards: the PID may have been reused meanwhile.
    if (found == uses.end() || !books_.processes().IsCurrent(summary.pid, summary.process_id)) continue;
    if (found->second.resident_bytes >= 0) summary.resident_bytes = found->second.resident_bytes;
  }
}

std::optional<std::vector<profile::ProcessSummary>> Queries::PlanSummaries() {
  if (summaries_.has_value()) return summaries_;
  taking_ends_ = base::Now() + kFreesPatience;
  taking_ = dumps_.orders().TakeAllFrees(targets_);
  return std::nullopt;
}

bool Queries::HasPlannedSummaries(base::Instant now) const {
  return taking_ == nullptr || *taking_ == 0 || now > taking_ends_;
}

std::vector<profile::ProcessSummary> Queries::MakeSummaries(const absl::flat_hash_map<uint64_t, TallySums>& sums,
                                                            absl::Duration cost) {
  const base::Instant begin = base::Now();
  if (begin - active_read_ >= kActiveInterval) {
    active_read_ = begin;
    for (auto& [process_id, target] : targets_) {
      controls_.ReadActive(target);
      requests_.NoteOwner(target);
    }
  }
  std::vector<profile::ProcessSummary> summaries;
  const std::map<uint64_t, bpf::Losses> all_losses = books_.entries().ReadAllLosses();
  const TallySums none;
  for (const auto& [process_id, target] : targets_) {
    const auto own = sums.find(process_id);
    const bool has_tallies = own != sums.end();
    if (target.ending.has_value() || !target.policy.record || !dumps_.HasProfile(target, has_tallies)) continue;
    const auto losses = all_losses.find(process_id);
    summaries.push_back(Summarise(target, has_tallies ? own->second : none,
                                  losses == all_losses.end() ? bpf::Losses{} : losses->second));
  }
  AddResidentBytes(summaries);
  std::ranges::sort(summaries, {}, &profile::ProcessSummary::pid);
  summaries_ = summaries;
  summaries_made_ = base::Now();
  summaries_cost_ = cost + (summaries_made_ - begin);
  return summaries;
}

absl::StatusOr<std::optional<uid_t>> Queries::Owner(const profile::ProcessRef& process) {
  absl::StatusOr<Target*> target = FindForClient(process);
  if (!target.ok()) return target.status();
  // As of now: the process may have changed its user.
  if (!requests_.NoteOwner(**target)) {
    return absl::ResourceExhaustedError(absl::StrCat("the owner of process ", process.pid, " is not known now"));
  }
  return (*target)->owner;
}

void Queries::Plan(const profile::ProcessRef& process, const PlanDone& done) {
  absl::StatusOr<Target*> target = FindForClient(process);
  if (!target.ok()) return done(target.status());
  if (!requests_.IsSettled(**target)) return done(NotSettled(**target));
  dumps_.TakeFreesAndPlan(**target, done);
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

void Queries::Finish(const ProfilePlan& plan, const std::shared_ptr<BuiltProfile>& built, bool with_coverage,
                     const FinishDone& done) {
  const absl::StatusOr<Target*> target = FindForClient(plan.process);
  if (!target.ok()) return done(target.status());
  dumps_.Complete(**target, {built, &built->profile},
                  [this, process = plan.process, space = plan.space, built, with_coverage, done] {
                    const absl::StatusOr<Target*> target = FindForClient(process);
                    if (!target.ok()) return done(target.status());
                    profile::Snapshot snapshot = {.profile = std::move(built->profile),
                                                  .process_id = process.process_id};
                    if (with_coverage) snapshot.coverage = CoverageOf(**target, snapshot.profile.Live().bytes);
                    if (space != nullptr) snapshot.executable = space->executable;
                    snapshot.time = base::WallNow();
                    done(std::move(snapshot));
                  });
}

absl::StatusOr<std::string> Queries::Publish(const profile::ProcessRef& process, const Dumps::Filled& filled) {
  absl::StatusOr<Target*> target = FindForClient(process);
  if (!target.ok()) return target.status();
  return dumps_.Publish(**target, HEAPTAP_DUMP_MANUAL, filled);
}

absl::Status Queries::DumpOne(const profile::ProcessRef& process) {
  absl::StatusOr<Target*> target = FindForClient(process);
  if (!target.ok()) return target.status();
  dumps_.Write(**target, HEAPTAP_DUMP_MANUAL);
  return absl::OkStatus();
}

absl::StatusOr<profile::AllocatorFigures> Queries::ReadAllocatorFigures(const profile::ProcessRef& process) {
  absl::StatusOr<Target*> target = FindForClient(process);
  if (!target.ok()) return target.status();
  if ((*target)->control_address == 0) return NoControlBlock(process.pid);
  const absl::StatusOr<heaptap_control> control = controls_.Order(**target, worker::ControlVerb::kRead);
  if (!control.ok()) return AskAgainIfItMayPass(control.status());
  profile::AllocatorFigures figures = process::AllocatorFiguresOf(*control);
  figures.lg_sample = (*target)->LgSample();
  return figures;
}

absl::StatusOr<profile::ResidentBytes> Queries::Resident(const profile::ProcessRef& process) {
  absl::StatusOr<Target*> target = FindForClient(process);
  if (!target.ok()) return target.status();
  absl::StatusOr<profile::ResidentBytes> resident = ResidentOf(**target);
  if (!resident.ok()) return AskAgainIfItMayPass(resident.status());
  return resident;
}

absl::Status Queries::SetActive(const profile::ProcessRef& process, bool active) {
  absl::StatusOr<Target*> target = FindForClient(process);
  if (!target.ok()) return target.status();
  if ((*target)->control_address == 0) return NoControlBlock(process.pid);
  absl::Status status = controls_.Order(**target, worker::ControlVerb::kActive, active ? 1 : 0).status();
  if (status.ok()) (*target)->active = active;
  summaries_.reset();
  return AskAgainIfItMayPass(status);
}

absl::Status Queries::SetRate(const profile::ProcessRef& process, std::optional<uint32_t> lg_sample) {
  absl::StatusOr<Target*> target = FindForClient(process);
  if (!target.ok()) return target.status();
  if ((*target)->control_address == 0) return NoControlBlock(process.pid);
  if ((*target)->foreign) {
    return absl::FailedPreconditionError(absl::StrCat("another collector controls the rate of process ", process.pid));
  }
  const std::optional<uint32_t> before = std::exchange((*target)->asked_lg_sample, lg_sample);
  // Use exactly this rate for now; the budget may raise it again later.
  const uint32_t raised_before = std::exchange((*target)->raised, 0);
  absl::Status written = controls_.Order(**target, worker::ControlVerb::kTake, (*target)->CollectorRate()).status();
  // With a rate that the process does not have, the errors of its figures would be wrong. One that has ended needs
  // none.
  if (!written.ok() && !absl::IsNotFound(written)) {
    (*target)->asked_lg_sample = before;
    (*target)->raised = raised_before;
    return AskAgainIfItMayPass(written);
  }
  (*target)->is_unwritten = false;
  (*target)->written_rate = (*target)->WantedRate();
  (*target)->books.is_saved = false;
  summaries_.reset();
  return absl::OkStatus();
}

profile::CollectorFigures Queries::Figures(std::vector<profile::ProcessSummary> processes,
                                           const profile::CountsByName& events) {
  profile::CollectorFigures figures;
  figures.version = HEAPTAP_VERSION;
  figures.revision = books_.layout();
  figures.processes = std::move(processes);
  figures.events = events;
  const bpf::Losses losses = books_.entries().ReadLosses(0);
  for (uint32_t reason = HEAPTAP_NO_LOSS + 1; reason < losses.size(); reason++) {
    figures.losses[std::string(bpf::LossName(reason))] = losses[reason].events;
  }
  dumps_.AddFigures(figures);
  figures.dump_errors += requests_.given_up();
  const bpf::KernelMemory memory = books_.Memory();
  figures.kernel_memory_bytes = memory.held;
  figures.kernel_memory_most_bytes = memory.most;
  figures.ring_fill_ratio = books_.EventsFill();
  figures.failing = base::FailingTasks();
  figures.beyond_bounds = base::CountsBeyondBounds();
  return figures;
}

std::optional<profile::ProcessRef> Queries::LargestProcess() {
  const absl::StatusOr<std::map<uint64_t, bpf::RecordedProcess>> processes = books_.processes().ReadAll();
  if (!processes.ok()) return std::nullopt;
  std::optional<profile::ProcessRef> largest;
  // Signed: a free that races with its allocation can leave it below 0.
  int64_t most = 0;
  for (const auto& [process_id, target] : targets_) {
    const auto found = processes->find(process_id);
    if (found == processes->end() || target.ending.has_value() || !dumps_.HasProfile(target)) continue;
    const auto live = static_cast<int64_t>(found->second.process.figures.live_weight);
    if (largest.has_value() && live <= most) continue;
    largest = {target.pid, process_id};
    most = live;
  }
  return largest;
}

}  // namespace heaptap::recording
