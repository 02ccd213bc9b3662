// SPDX-License-Identifier: Apache-2.0
#include "userspace/recording/endings.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/messages.h"
#include "userspace/base/user_ids.h"
#include "userspace/process/facts.h"
#include "userspace/profiles/profile_plan.h"
#include "userspace/profiles/tally_sums.h"

namespace heaptap::recording {
namespace {

// In a system-wide recording many processes may end in a second, and reading all tallies takes milliseconds: ends
// within this time share one reading.
constexpr absl::Duration kExitPause = absl::Milliseconds(100);

// The most ends in one call of the recording's thread, which has other things to do. Each end costs the thread some
// tens of microseconds, and a user can make thousands of processes end at once.
constexpr size_t kMaxFoundAtOnce = 500;
constexpr size_t kMaxClosedAtOnce = 500;

bool IsFatal(const Ending& ending) { return !ending.is_known || (ending.status & 0x7f) != 0; }

}  // namespace

Endings::Endings(const Means& means)
    : means_(means), recorder_options_(means.options), is_system_wide_(means.options.system_wide.has_value()) {}

void Endings::Fail(const absl::Status& status) {
  failed_ = true;
  base::Say(status.message());
}

void Endings::Handle(Target& target, Ending ending) {
  const base::OneThread one_thread(thread_);
  if (target.ending.has_value()) return;
  if (target.name == kUnknownName) {
    // A process has the name of its first thread.
    if (absl::StatusOr<bpf::ThreadName> name = means_.books.entries().ReadThreadName(target.process_id, target.pid);
        name.ok()) {
      target.name = base::AsciiOnly(name->name);
    }
  }
  if (!target.image->has_started && states_ != nullptr) {
    // Perhaps the previous recorder knew the process.
    if (absl::StatusOr<TargetState> state = states_->Load(target.process_id); state.ok()) {
      means_.targets.Restore(target, std::move(state->target));
      ending.space = std::make_shared<AddressSpace>(std::move(state->space));
    }
  }
  if (!target.policy_state->was_found) target.policy = Part<Policy, Everyone>(PolicyOfEnded(target));
  target.ending = std::move(ending);
  // If its end was missed, the PID may have been reused.
  if (means_.targets.FindRunning(target.pid) == nullptr) {
    means_.unwinding.IdentifyFiles(target.pid);
    std::shared_ptr<const AddressSpace> space = means_.spaces.Take(target.pid);
    if (target.ending->space == nullptr) target.ending->space = std::move(space);
  }
  to_close_.insert(target.process_id);
}

Policy Endings::PolicyOfEnded(const Target& target) const {
  if (!is_system_wide_ || !recorder_options_.system_wide->rules.has_value()) return *target.policy;
  return recorder_options_.system_wide->rules->Find({.pid = target.pid,
                                                     .command = target.name,
                                                     .user = target.facts->user.value_or(base::kUnknownUser),
                                                     .control_groups = target.facts->control_groups});
}

struct Endings::Closing {
  ProfilePlan plan;
  bool is_written;   // the process has written its last dump itself
  bool has_dump;     // a last dump is to be written, if it has tallies
  bool has_summary;  // of how its stacks end
  // As read in the background.
  bool has_tallies = false;
  TallySums sums = {};
  bpf::Losses losses = {};
  std::optional<Dumps::Filled> filled = {};
  std::optional<profile::StackEnds> stack_ends = {};
};

void Endings::CloseEnded(base::Instant now) {
  const base::OneThread one_thread(thread_);
  // Dumps may still be in progress. A system-wide recording does not block on them.
  const auto waits = [&](uint64_t process_id) {
    return means_.unwinding.IsWorthWaiting(process_id, now) || means_.dumps.IsMaking(process_id) ||
           (is_system_wide_ && means_.requests.answers().IsRunning(process_id));
  };
  if (is_closing_ || std::all_of(to_close_.begin(), to_close_.end(), waits)) return;
  if (is_system_wide_ && now - exits_handled_ < kExitPause) return;
  exits_handled_ = now;
  const auto closing = std::make_shared<std::vector<Closing>>();
  std::vector<const Target*> shown;
  for (auto next = to_close_.begin(); next != to_close_.end();) {
    Target* const target = means_.targets.Find(*next);
    if (target != nullptr && waits(*next)) {
      ++next;
      continue;
    }
    if (closing->size() == kMaxClosedAtOnce) {
      exits_handled_ = base::Instant::InfinitePast();
      break;
    }
    next = to_close_.erase(next);
    if (target == nullptr) continue;
    closing->push_back(Plan(*target));
    if (recorder_options_.show_books) shown.push_back(target);
  }
  means_.dumps.SayBooks(std::move(shown));
  is_closing_ = true;
  const auto status = std::make_shared<absl::Status>();
  means_.background.Run([this, closing, status] { ReadAndFill(*closing, *status); },
                        [this, closing, status] {
                          is_closing_ = false;
                          if (!status->ok()) Fail(*status);
                          for (const Closing& one : *closing) {
                            Target* target = means_.targets.Find(one.plan.process.process_id);
                            if (target == nullptr) continue;
                            if (status->ok()) {
                              CloseOne(*target, one);
                            } else {
                              to_close_.insert(target->process_id);
                            }
                          }
                        });
}

Endings::Closing Endings::Plan(Target& target) {
  // A process with a final dump of its own gets no second one, unless -o was given.
  const bool is_written = means_.requests.HasOwnFinal(target) && !recorder_options_.prefix_given;
  const bool is_asked = target.policy->dump_at_exit == DumpAtExit::kAlways ||
                        (target.policy->dump_at_exit == DumpAtExit::kFatal && IsFatal(*target.ending));
  const bool is_wanted = means_.dumps.IsWanted(target);
  return {.plan = means_.dumps.Plan(target),
          .is_written = is_written,
          .has_dump = is_wanted && is_asked && !is_written && !IsLeftToOther(target),
          .has_summary = is_wanted && is_written && !is_system_wide_};
}

// In the background: uses only what is thread-safe.
void Endings::ReadAndFill(std::vector<Closing>& closing, absl::Status& status) const {
  const bpf::Entries& entries = means_.books.entries();
  absl::flat_hash_map<uint64_t, std::vector<bpf::TallyEntry>> tallies;
  for (const Closing& one : closing) tallies[one.plan.process.process_id] = {};
  status = entries.VisitTallies([&](uint64_t process_id, const bpf::TallyEntry& entry) {
    if (const auto found = tallies.find(process_id); found != tallies.end()) found->second.push_back(entry);
  });
  if (!status.ok()) return;
  const std::map<uint64_t, bpf::Losses> losses = entries.ReadAllLosses();
  for (Closing& one : closing) {
    if (const auto own = losses.find(one.plan.process.process_id); own != losses.end()) one.losses = own->second;
    std::vector<bpf::TallyEntry>& own = tallies[one.plan.process.process_id];
    one.has_tallies = !own.empty();
    one.sums = SumTallies(own);
    if (!one.has_summary && (!one.has_dump || own.empty())) continue;
    const profile::Profile profile = BuildProfile(entries, one.plan.subject, std::move(own), one.plan.mappings_lost);
    if (one.has_dump) one.filled = means_.dumps.Fill(profile);
    if (one.has_summary) one.stack_ends = profile.stack_ends;
  }
}

void Endings::CloseOne(Target& target, const Closing& closing) {
  const uint64_t process_id = target.process_id;
  const bool has_profile = means_.dumps.HasProfile(target, closing.has_tallies);
  // Short-lived processes, such as the helpers of a shell script, often end before their first sample.
  if (has_profile && !closing.has_tallies && !closing.is_written && !is_system_wide_) {
    means_.dumps.AddWithoutSamples(target);
  }
  if (!target.image->has_started && !closing.has_tallies && target.has_execed && !is_system_wide_) {
    means_.dumps.AddWithoutAllocator(target);
  }
  std::string path;
  if (closing.filled.has_value()) {
    if (absl::StatusOr<std::string> written = means_.dumps.Publish(target, HEAPTAP_DUMP_FINAL, *closing.filled);
        written.ok()) {
      path = *std::move(written);
      // Marked at once, so that the next collector does not write the dump again.
      if (states_ != nullptr) means_.books.MarkClosed(process_id);
      // The process can report its leaks itself only after a dump of its own.
      if (target.image->prof_leak && !target.requested->own_final && !is_system_wide_) {
        for (const std::string& line : means_.dumps.LeakReport(target, closing.filled->live, path))
          base::SayPlain(line);
      }
    }
  }
  if (has_profile && closing.stack_ends.has_value()) {
    if (!recorder_options_.follow) base::Say(absl::StrCat("process ", target.pid, " wrote its last dump itself"));
    means_.dumps.AddStackEnds(*closing.stack_ends);
  }
  if (is_system_wide_ && has_profile) {
    ended_.Add({.summary = means_.queries.Summarise(target, closing.sums, closing.losses),
                .ended = target.ending->time,
                .status = target.ending->status,
                .by_oom_kill = target.ending->by_oom_kill,
                .dump = path});
  }
  Close(process_id);
}

bool Endings::IsLeftToOther(const Target& target) {
  return target.control->other != nullptr && !target.control->other->HasEnded();
}

void Endings::Close(uint64_t process_id) {
  means_.unwinding.Forget(process_id);
  means_.requests.answers().Drop(process_id);
  means_.targets.Erase(process_id);  // absent if only the previous recorder knew it
  closed_.insert(process_id);
  if (states_ == nullptr) return;
  means_.books.MarkClosed(process_id);
  states_->Remove(process_id);
}

void Endings::ForgetClosed() {
  if (closed_.empty()) return;
  // A dump of what a process was before its exec, or before a reset, may still be in progress.
  std::set<uint64_t> waiting;
  for (const uint64_t process_id : closed_) {
    if (means_.dumps.IsMaking(process_id)) waiting.insert(process_id);
  }
  std::set<uint64_t> forgotten = std::exchange(closed_, std::move(waiting));
  for (const uint64_t process_id : closed_) forgotten.erase(process_id);
  if (forgotten.empty()) return;
  forgotten_.insert(forgotten.begin(), forgotten.end());
  const auto status = std::make_shared<absl::Status>();
  means_.cleaning.Run([this, forgotten, status] { *status = means_.books.Forget(forgotten); },
                      [this, forgotten, status] {
                        for (const uint64_t process_id : forgotten) forgotten_.erase(process_id);
                        if (!status->ok()) Fail(*status);
                      });
}

void Endings::FindUnnoticed() {
  const uint64_t lost = means_.books.EventsLost();
  // A user can make the kernel lose events without end, so the search takes at most a tenth of the time.
  const base::Instant begin = base::Now();
  if (lost == events_lost_ || !IsSearchDue(begin)) return;
  const absl::Cleanup note_cost = [this, begin] {
    searched_ = base::Now();
    search_cost_ = searched_ - begin;
  };
  // Ends come first, because PIDs may have been reused.
  has_more_ = !FindUnnoticedEnds(kMaxFoundAtOnce);
  if (has_more_) return;
  events_lost_ = lost;
  absl::StatusOr<std::map<uint64_t, bpf::RecordedProcess>> processes = means_.books.processes().ReadAll();
  if (!processes.ok()) return Fail(processes.status());
  for (const auto& [process_id, recorded] : *processes) {
    if (means_.targets.Find(process_id) != nullptr) continue;
    if (const Target* before = means_.targets.FindRunning(recorded.tgid); before != nullptr) {
      // A reset was missed: the program is still the same. After a missed exec, heaptap:start of the new program
      // corrects the facts.
      Replace(before->process_id, process_id);
    } else {
      means_.targets.Add(process_id, recorded.tgid, recorder_options_.policy);
    }
  }
}

void Endings::FindAllUnnoticedEnds() { FindUnnoticedEnds(SIZE_MAX); }

bool Endings::FindUnnoticedEnds(size_t most) {
  absl::StatusOr<std::map<uint64_t, Unnoticed>> ended = means_.books.processes().ReadUnnoticed();
  if (!ended.ok()) {
    Fail(ended.status());
    return true;
  }
  for (const auto& [process_id, process] : *ended) {
    if (IsClosed(process_id)) continue;
    if (const Target* const known = means_.targets.Find(process_id); known != nullptr && known->ending.has_value())
      continue;
    // After a reset a known target goes on with other books, and is replaced where those are found.
    const bool is_reset = process.cause == Unnoticed::Cause::kReset;
    if (is_reset && means_.targets.Find(process_id) != nullptr) continue;
    if (most-- == 0) return false;
    if (is_reset) {
      Close(process_id);
      continue;
    }
    const Target* before = FindReset(process.tgid, *ended);
    if (process.cause == Unnoticed::Cause::kExec) {
      if (before != nullptr) Close(before->process_id);
      Close(process_id);
      continue;
    }
    if (before != nullptr) Replace(before->process_id, process_id);
    Handle(means_.targets.Add(process_id, process.tgid, recorder_options_.policy),
           {.status = static_cast<int>(process.status),
            .by_oom_kill = process.by_oom_kill,
            .peak = process.peak_weight,
            .time = base::WallNow(),
            .space = nullptr});
  }
  return true;
}

const Target* Endings::FindReset(pid_t pid, const std::map<uint64_t, Unnoticed>& ended) const {
  for (const uint64_t process_id : means_.targets.WithPid(pid)) {
    const auto end = ended.find(process_id);
    if (end != ended.end() && end->second.cause == Unnoticed::Cause::kReset) return means_.targets.Find(process_id);
  }
  return nullptr;
}

Target& Endings::Replace(uint64_t ended_id, uint64_t new_id) {
  Target& target = means_.targets.Replace(ended_id, new_id);
  Close(ended_id);
  return target;
}

// Done first, because the next sweep removes the marks of closed processes.
void Endings::ForgetClosedByPredecessor() {
  absl::StatusOr<std::map<uint64_t, std::vector<bpf::TallyEntry>>> tallies = means_.books.entries().ReadAllTallies();
  absl::StatusOr<std::set<uint64_t>> closed = means_.books.ReadClosed();
  if (!tallies.ok() || !closed.ok()) return;
  for (const uint64_t process_id : *closed) {
    if (tallies->contains(process_id) || means_.books.processes().IsUnnoticed(process_id)) closed_.insert(process_id);
  }
  ForgetClosed();
}

// Closes books of processes whose end no event will report.
void Endings::FinishOrphans(absl::FunctionRef<void()> pump) {
  absl::StatusOr<std::map<uint64_t, std::vector<bpf::TallyEntry>>> tallies = means_.books.entries().ReadAllTallies();
  absl::StatusOr<std::map<uint64_t, bpf::RecordedProcess>> processes = means_.books.processes().ReadAll();
  absl::StatusOr<std::set<uint64_t>> closed = means_.books.ReadClosed();
  if (!tallies.ok() || !closed.ok() || !processes.ok()) return;
  // Handles processes that began or ended during the reading.
  pump();
  for (const auto& [process_id, entries] : *tallies) {
    if (closed->contains(process_id) || IsClosed(process_id)) continue;
    if (!processes->contains(process_id) && means_.targets.Find(process_id) == nullptr) {
      Handle(means_.targets.Add(process_id, 0, recorder_options_.policy), {.is_known = false, .time = base::WallNow()});
    }
  }
}

// Ends targets that the kernel no longer knows: an ignored process sends no event for its exec, and the event of an end
// may have been dropped. Two looks are needed, because an event that did arrive is handled before the second one.
void Endings::EndMissing(const std::map<uint64_t, bpf::RecordedProcess>& processes) {
  std::set<uint64_t> missing;
  for (auto& [process_id, target] : means_.targets) {
    if (target.ending.has_value() || processes.contains(process_id)) continue;
    if (missing_.contains(process_id)) EndUnseen(target);
    missing.insert(process_id);
  }
  missing_ = std::move(missing);
}

void Endings::EndUnseen(Target& target) {
  // The mappings under this PID may belong to another process by now.
  const bool is_used_again = std::ranges::any_of(means_.targets.WithPid(target.pid), [&](uint64_t process_id) {
    return process_id != target.process_id && !means_.targets.Find(process_id)->ending.has_value();
  });
  Handle(target, {.time = base::WallNow(), .space = is_used_again ? std::make_shared<AddressSpace>() : nullptr});
}

}  // namespace heaptap::recording
