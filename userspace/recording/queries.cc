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

namespace heaptap::recording {
namespace {

// The time for the summaries of dozens of processes with hundreds of call paths.
constexpr absl::Duration kQuickSummaries = absl::Milliseconds(10);

// A new process is not listed until its owner has been read, but for no longer than this.
constexpr absl::Duration kOwnerPatience = absl::Seconds(1);

// Summaries wait this long for the frees that processes hold back.
constexpr absl::Duration kFreesPatience = absl::Milliseconds(100);

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
  // Summaries that take long are made for at most a tenth of the time.
  if (summaries_cost_ < kQuickSummaries || now - summaries_made_ > 10 * summaries_cost_) summaries_.reset();
}

absl::StatusOr<Target*> Queries::FindForClient(const profile::ProcessRef& process) {
  Target* target = means_.targets.Find(process.process_id);
  const bool is_it = target != nullptr && target->pid == process.pid && !target->ending.has_value();
  const bool is_there = is_it && target->policy->record && means_.dumps.HasProfile(*target);
  if (is_there && means_.books.processes().IsCurrent(process.pid, process.process_id)) return target;
  return absl::NotFoundError(absl::StrCat("process ", process.pid, " is not recorded"));
}

std::optional<profile::ProcessRef> Queries::FindProcess(pid_t pid) {
  const base::OneThread one_thread(thread_);
  const Target* target = means_.targets.FindRunning(pid);
  if (target == nullptr) return std::nullopt;
  return profile::ProcessRef{target->pid, target->process_id};
}

absl::StatusOr<profile::NamedProcess> Queries::Find(pid_t pid, base::Instant asked) {
  const base::OneThread one_thread(thread_);
  const Target* const running = means_.targets.FindRunning(pid);
  const absl::StatusOr<Target*> found = FindForClient({pid, running == nullptr ? 0 : running->process_id});
  if (!found.ok()) return found.status();
  const Target& target = **found;
  if (!means_.readings.IsRead(target, asked - Readings::kRoundPause)) {
    const absl::Duration patience = target.facts->is_known() ? Readings::kPatience : kOwnerPatience;
    if (base::Now() - asked < patience) return absl::ResourceExhaustedError("the process is being read");
  }
  return profile::NamedProcess{
      .pid = pid, .process_id = target.process_id, .owner = target.facts->owner, .command = target.name};
}

profile::ProcessSummary Queries::Summarise(const Target& target, const TallySums& sums, const bpf::Losses& losses) {
  profile::ProcessSummary summary;
  summary.pid = target.pid;
  summary.process_id = target.process_id;
  summary.command = target.name;
  if (const AddressSpace* space = means_.dumps.Space(target); space != nullptr) summary.executable = space->executable;
  summary.service = target.facts->service;
  summary.control_group = target.facts->control_group;
  summary.recorded_since = target.books->since;
  summary.live_bytes = sums.live.bytes;
  summary.live_objects = sums.live.objects;
  summary.allocated_bytes = sums.allocated.bytes;
  summary.allocated_objects = sums.allocated.objects;
  summary.samples = sums.allocated.samples;
  summary.contexts = sums.contexts;
  summary.owner = target.facts->owner;
  if (target.ending.has_value()) {
    summary.peak_bytes = static_cast<double>(target.ending->peak);
  } else {
    summary.allocation_rate = target.books->allocation_rate;
    const absl::StatusOr<heaptap_process> process = means_.books.processes().Read(target.pid);
    if (process.ok() && process->identity.id == target.process_id) {
      summary.peak_bytes = static_cast<double>(process->figures.peak_weight);
    }
  }
  summary.peak_bytes = std::max(summary.peak_bytes, summary.live_bytes);
  summary.lg_sample = target.LgSample();
  if (!target.ending.has_value()) {
    summary.active = target.image->active;
    if (target.facts->memory.resident_bytes >= 0) summary.resident_bytes = target.facts->memory.resident_bytes;
  }
  summary.allocator = target.image->allocator_name;
  for (uint32_t reason = HEAPTAP_NO_LOSS + 1; reason < losses.size(); reason++) {
    if (losses[reason].events != 0) summary.losses[std::string(bpf::LossName(reason))] = losses[reason].events;
  }
  return summary;
}

std::optional<std::vector<profile::ProcessSummary>> Queries::PlanSummaries() {
  const base::OneThread one_thread(thread_);
  if (summaries_.has_value()) return summaries_;
  taking_ends_ = base::Now() + kFreesPatience;
  taking_ = means_.dumps.orders().TakeAllFrees(means_.targets);
  are_read_ = means_.readings.Refresh(base::Now());
  return std::nullopt;
}

bool Queries::HasPlannedSummaries(base::Instant now) {
  are_read_ = are_read_ || means_.readings.Refresh(now);
  return are_read_ && (taking_ == nullptr || *taking_ == 0 || now > taking_ends_);
}

std::vector<profile::ProcessSummary> Queries::MakeSummaries(const absl::flat_hash_map<uint64_t, TallySums>& sums,
                                                            absl::Duration cost) {
  const base::OneThread one_thread(thread_);
  const base::Instant begin = base::Now();
  std::vector<profile::ProcessSummary> summaries;
  const std::map<uint64_t, bpf::Losses> all_losses = means_.books.entries().ReadAllLosses();
  const TallySums none;
  for (const auto& [process_id, target] : means_.targets) {
    const auto own = sums.find(process_id);
    const bool has_tallies = own != sums.end();
    if (target.ending.has_value() || !target.policy->record || !means_.dumps.HasProfile(target, has_tallies)) continue;
    // Without an owner, its user would be told that there is no such process.
    if (!target.facts->is_known() && begin - target.books->begun < kOwnerPatience) continue;
    const auto losses = all_losses.find(process_id);
    summaries.push_back(Summarise(target, has_tallies ? own->second : none,
                                  losses == all_losses.end() ? bpf::Losses{} : losses->second));
  }
  std::ranges::sort(summaries, {}, &profile::ProcessSummary::pid);
  summaries_ = summaries;
  summaries_made_ = base::Now();
  summaries_cost_ = cost + (summaries_made_ - begin);
  return summaries;
}

absl::StatusOr<std::optional<uid_t>> Queries::Owner(const profile::ProcessRef& process, base::Instant asked) {
  const base::OneThread one_thread(thread_);
  absl::StatusOr<Target*> target = FindForClient(process);
  if (!target.ok()) return target.status();
  // The process may have changed its user.
  if (!means_.readings.IsRead(**target, asked)) {
    return absl::ResourceExhaustedError(absl::StrCat("the owner of process ", process.pid, " is not known now"));
  }
  return (*target)->facts->owner;
}

void Queries::Plan(const profile::ProcessRef& process, const PlanDone& done) {
  const base::OneThread one_thread(thread_);
  absl::StatusOr<Target*> target = FindForClient(process);
  if (!target.ok()) return done(target.status());
  if (!means_.requests.IsSettled(**target)) return done(NotSettled(**target));
  means_.dumps.TakeFreesAndPlan(**target, done);
}

void Queries::ReadResident(const Target& target, Done<profile::ResidentBytes> done) {
  if (!means_.orders.HasRoom(target.pid)) return done(absl::UnavailableError("too many orders wait"));
  const auto resident = std::make_shared<absl::StatusOr<profile::ResidentBytes>>(profile::ResidentBytes());
  means_.orders.Start(
      target.pid, [pid = target.pid, resident](worker::Hands& hands, int) { *resident = hands.Residency(pid); },
      [this, process = profile::ProcessRef{target.pid, target.process_id}, resident, done = std::move(done)] {
        // Checked afterwards: the PID may have been reused meanwhile.
        const absl::Status is_it = FindForClient(process).status();
        done(is_it.ok() ? *resident : is_it);
      });
}

void Queries::ReadCoverage(const profile::ProcessRef& process, Done<CoverageFacts> done) {
  const absl::StatusOr<Target*> target = FindForClient(process);
  if (!target.ok()) return done(target.status());
  const auto with_statistics = [this, process, done = std::move(done)](std::optional<heaptap_statistics> statistics) {
    const absl::StatusOr<Target*> now = FindForClient(process);
    if (!now.ok()) return done(now.status());
    ReadResident(**now, [statistics, done](const absl::StatusOr<profile::ResidentBytes>& resident) {
      CoverageFacts facts = {.statistics = statistics};
      if (resident.ok()) facts.resident = *resident;
      done(facts);
    });
  };
  if ((*target)->image->control_address == 0) return with_statistics({});
  means_.controls.Read(**target, [with_statistics](const absl::StatusOr<heaptap_control>& control) {
    const bool has_own = control.ok() && !process::IsGuest(*control);
    with_statistics(has_own ? std::optional(control->statistics) : std::nullopt);
  });
}

void Queries::Finish(const ProfilePlan& plan, const std::shared_ptr<BuiltProfile>& built,
                     const std::optional<CoverageFacts>& facts, const FinishDone& done) {
  const absl::StatusOr<Target*> target = FindForClient(plan.process);
  if (!target.ok()) return done(target.status());
  means_.dumps.Complete(
      **target, {built, &built->profile}, [this, process = plan.process, space = plan.space, built, facts, done] {
        const absl::StatusOr<Target*> now = FindForClient(process);
        if (!now.ok()) return done(now.status());
        profile::Snapshot snapshot = {.profile = std::move(built->profile), .process_id = process.process_id};
        if (facts.has_value() && facts->resident.has_value()) {
          const heaptap_statistics* const statistics = facts->statistics.has_value() ? &*facts->statistics : nullptr;
          snapshot.coverage = profile::Cover(*facts->resident, statistics, snapshot.profile.Live().bytes);
        }
        if (space != nullptr) snapshot.executable = space->executable;
        snapshot.time = base::WallNow();
        done(std::move(snapshot));
      });
}

absl::StatusOr<std::string> Queries::Publish(const profile::ProcessRef& process, const Dumps::Filled& filled) {
  absl::StatusOr<Target*> target = FindForClient(process);
  if (!target.ok()) return target.status();
  return means_.dumps.Publish(**target, HEAPTAP_DUMP_MANUAL, filled);
}

absl::Status Queries::DumpOne(const profile::ProcessRef& process) {
  absl::StatusOr<Target*> target = FindForClient(process);
  if (!target.ok()) return target.status();
  means_.dumps.Write(**target, HEAPTAP_DUMP_MANUAL);
  return absl::OkStatus();
}

void Queries::ReadAllocatorFigures(const profile::ProcessRef& process, Done<profile::AllocatorFigures> done) {
  const absl::StatusOr<Target*> target = FindForClient(process);
  if (!target.ok()) return done(target.status());
  if ((*target)->image->control_address == 0) return done(NoControlBlock(process.pid));
  means_.controls.Read(**target,
                       [this, process, done = std::move(done)](const absl::StatusOr<heaptap_control>& control) {
                         if (!control.ok()) return done(AskAgainIfItMayPass(control.status()));
                         const absl::StatusOr<Target*> now = FindForClient(process);
                         if (!now.ok()) return done(now.status());
                         profile::AllocatorFigures figures = process::AllocatorFiguresOf(*control);
                         figures.lg_sample = (*now)->LgSample();
                         done(figures);
                       });
}

void Queries::Resident(const profile::ProcessRef& process, Done<profile::ResidentBytes> done) {
  const absl::StatusOr<Target*> target = FindForClient(process);
  if (!target.ok()) return done(target.status());
  ReadResident(**target, [done = std::move(done)](const absl::StatusOr<profile::ResidentBytes>& resident) {
    resident.ok() ? done(*resident) : done(AskAgainIfItMayPass(resident.status()));
  });
}

void Queries::SetActive(const profile::ProcessRef& process, bool active, StatusDone done) {
  const absl::StatusOr<Target*> target = FindForClient(process);
  if (!target.ok()) return done(target.status());
  if ((*target)->image->control_address == 0) return done(NoControlBlock(process.pid));
  means_.controls.SetActive(**target, active, [this, done = std::move(done)](const absl::Status& written) {
    summaries_.reset();
    done(AskAgainIfItMayPass(written));
  });
}

void Queries::SetRate(const profile::ProcessRef& process, std::optional<uint32_t> lg_sample, StatusDone done) {
  const absl::StatusOr<Target*> target = FindForClient(process);
  if (!target.ok()) return done(target.status());
  if ((*target)->image->control_address == 0) return done(NoControlBlock(process.pid));
  if ((*target)->control->is_foreign) {
    return done(
        absl::FailedPreconditionError(absl::StrCat("another collector controls the rate of process ", process.pid)));
  }
  // The client asks again while the rate is being written.
  if ((*target)->control->is_writing) return done(absl::ResourceExhaustedError("its rate is being written"));
  means_.controls.AskRate(**target, lg_sample, [this, done = std::move(done)](const absl::Status& written) {
    summaries_.reset();
    // A process that has ended needs no rate.
    done(absl::IsNotFound(written) ? absl::OkStatus() : AskAgainIfItMayPass(written));
  });
}

profile::CollectorFigures Queries::Figures(std::vector<profile::ProcessSummary> processes,
                                           const profile::CountsByName& events) {
  profile::CollectorFigures figures;
  figures.version = HEAPTAP_VERSION;
  figures.revision = means_.books.layout();
  figures.processes = std::move(processes);
  figures.events = events;
  const bpf::Losses losses = means_.books.entries().ReadAllLosses()[0];
  for (uint32_t reason = HEAPTAP_NO_LOSS + 1; reason < losses.size(); reason++) {
    figures.losses[std::string(bpf::LossName(reason))] = losses[reason].events;
  }
  means_.dumps.AddFigures(figures);
  figures.dump_errors += means_.requests.given_up();
  const bpf::KernelMemory memory = means_.books.Memory();
  figures.kernel_memory_bytes = memory.held;
  figures.kernel_memory_most_bytes = memory.most;
  figures.ring_fill_ratio = means_.books.EventsFill();
  figures.failing = base::FailingTasks();
  figures.beyond_bounds = base::CountsBeyondBounds();
  return figures;
}

std::optional<profile::ProcessRef> Queries::LargestProcess() {
  const absl::StatusOr<std::map<uint64_t, bpf::RecordedProcess>> processes = means_.books.processes().ReadAll();
  if (!processes.ok()) return std::nullopt;
  std::optional<profile::ProcessRef> largest;
  // Signed: a free that races with its allocation can leave it below 0.
  int64_t most = 0;
  for (const auto& [process_id, target] : means_.targets) {
    const auto found = processes->find(process_id);
    if (found == processes->end() || target.ending.has_value() || !means_.dumps.HasProfile(target)) continue;
    const auto live = static_cast<int64_t>(found->second.process.figures.live_weight);
    if (largest.has_value() && live <= most) continue;
    largest = {target.pid, process_id};
    most = live;
  }
  return largest;
}

}  // namespace heaptap::recording
