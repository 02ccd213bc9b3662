// SPDX-License-Identifier: Apache-2.0
#include "userspace/recording/endings.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/base/messages.h"

namespace heaptap::recording {
namespace {

// In a system-wide recording many processes may end in a second, and reading all tallies takes milliseconds: ends
// within this time share one reading.
constexpr absl::Duration kExitPause = absl::Milliseconds(100);

bool IsFatal(const Ending& ending) { return !ending.is_known || (ending.status & 0x7f) != 0; }

// Ended processes that are remembered with their last figures.
constexpr size_t kMaxEnded = 1000;

}  // namespace

Endings::Endings(const Means& means)
    : books_(means.books),
      targets_(means.targets),
      spaces_(means.spaces),
      controls_(means.controls),
      unwinding_(means.unwinding),
      dumps_(means.dumps),
      requests_(means.requests),
      queries_(means.queries),
      recorder_options_(means.options),
      is_system_wide_(means.options.system_wide.has_value()) {}

void Endings::Fail(const absl::Status& status) {
  failed_ = true;
  base::Say(status.message());
}

void Endings::Handle(Target& target, Ending ending) {
  if (target.ending.has_value()) return;
  if (target.name.empty()) {
    // A process has the name of its first thread.
    if (absl::StatusOr<bpf::ThreadName> name = books_.entries().ReadThreadName(target.process_id, target.pid);
        name.ok()) {
      target.name = base::AsciiOnly(name->name);
    }
  }
  if (!target.started && states_ != nullptr) {
    // Perhaps the previous recorder knew the process.
    if (absl::StatusOr<TargetState> state = states_->Load(target.process_id); state.ok()) {
      const Policy policy = target.policy;
      target = std::move(state->target);
      target.policy = policy;
      ending.space = std::make_shared<AddressSpace>(std::move(state->space));
    }
  }
  target.ending = std::move(ending);
  // If its end was missed, the PID may have been reused.
  if (targets_.FindRunning(target.pid) == nullptr) {
    std::shared_ptr<const AddressSpace> space = spaces_.Take(target.pid);
    if (target.ending->space == nullptr) target.ending->space = std::move(space);
  }
  to_close_.insert(target.process_id);
}

void Endings::CloseEnded(absl::Time now) {
  // A process's own last dump may still be in progress. A system-wide recording does not block on it.
  const auto waits = [&](uint64_t process_id) {
    return unwinding_.IsWorthWaiting(process_id, now) || (is_system_wide_ && requests_.answers().IsRunning(process_id));
  };
  if (std::all_of(to_close_.begin(), to_close_.end(), waits)) return;
  if (is_system_wide_ && now - exits_handled_ < kExitPause) return;
  exits_handled_ = now;
  absl::StatusOr<std::map<uint64_t, std::vector<bpf::TallyEntry>>> tallies = books_.entries().ReadAllTallies();
  if (!tallies.ok()) return Fail(tallies.status());
  std::vector<Target*> closing;
  for (const uint64_t process_id : std::exchange(to_close_, {})) {
    Target* target = targets_.Find(process_id);
    if (target == nullptr) continue;
    if (waits(process_id)) {
      to_close_.insert(process_id);
      continue;
    }
    closing.push_back(target);
  }
  if (recorder_options_.show_books) {
    std::vector<const Target*> shown;
    std::copy_if(closing.begin(), closing.end(), std::back_inserter(shown), [&](const Target* target) {
      return dumps_.HasProfile(*target, !(*tallies)[target->process_id].empty());
    });
    dumps_.SayBooks(std::move(shown));
  }
  for (Target* target : closing) CloseOne(*target, (*tallies)[target->process_id]);
}

void Endings::CloseOne(Target& target, const std::vector<bpf::TallyEntry>& tallies) {
  const uint64_t process_id = target.process_id;
  // If the process's own final dump failed, the collector writes one.
  if (requests_.answers().WaitFor(process_id) != 0) {
    failed_ = true;
    target.own_final = false;
  }
  const bool has_profile = dumps_.HasProfile(target, !tallies.empty());
  // A process with a final dump of its own gets no second one, unless -o was given.
  const bool is_written = target.own_final && !recorder_options_.prefix_given;
  const bool is_wanted = target.policy.dump_at_exit == DumpAtExit::kAlways ||
                         (target.policy.dump_at_exit == DumpAtExit::kFatal && IsFatal(*target.ending));
  // Short-lived processes, such as the helpers of a shell script, often end before their first sample.
  const bool is_empty = tallies.empty();
  if (has_profile && is_empty && !is_written && !is_system_wide_) {
    dumps_.AddWithoutSamples(target.name);
  }
  std::string path;
  if (has_profile && !is_written && is_wanted && !is_empty && !IsLeftToOther(target)) {
    const profile::Profile profile = dumps_.Build(target, tallies);
    if (absl::StatusOr<std::string> written = dumps_.WriteProfile(target, HEAPTAP_DUMP_FINAL, profile); written.ok()) {
      path = *std::move(written);
      // At once, so that the next collector does not write it again.
      if (states_ != nullptr) books_.MarkClosed(process_id);
      if (!target.own_final && !is_system_wide_) {
        for (const std::string& line : dumps_.LeakReport(target, profile.Leaks(), path)) base::SayPlain(line);
      }
    }
  }
  if (has_profile && is_written && !is_system_wide_) {
    if (!recorder_options_.follow) base::Say(absl::StrCat("process ", target.pid, " wrote its last dump itself"));
    dumps_.AddStackEnds(dumps_.Build(target, tallies));
  }
  if (is_system_wide_ && has_profile) {
    ended_.push_front({.summary = queries_.Summarise(target, tallies),
                       .ended = target.ending->time,
                       .status = target.ending->status,
                       .by_oom_kill = target.ending->by_oom_kill,
                       .dump = path});
    if (ended_.size() > kMaxEnded) ended_.pop_back();
  }
  Close(process_id);
}

bool Endings::IsLeftToOther(const Target& target) {
  return target.foreign && controls_.IsCollector(target.other_collector);
}

void Endings::Close(uint64_t process_id) {
  unwinding_.Forget(process_id);
  requests_.answers().Drop(process_id);
  targets_.Erase(process_id);  // absent if only the previous recorder knew it
  closed_.insert(process_id);
  if (states_ == nullptr) return;
  books_.MarkClosed(process_id);
  states_->Remove(process_id);
}

void Endings::ForgetClosed() {
  if (closed_.empty()) return;
  if (absl::Status status = books_.Forget(std::exchange(closed_, {})); !status.ok()) Fail(status);
}

void Endings::FindUnnoticed() {
  const uint64_t lost = books_.EventsLost();
  if (lost == events_lost_) return;
  events_lost_ = lost;
  // Ends come first, because PIDs may have been reused.
  FindUnnoticedEnds();
  absl::StatusOr<std::map<uint64_t, bpf::RecordedProcess>> processes = books_.processes().ReadAll();
  if (!processes.ok()) return Fail(processes.status());
  for (const auto& [process_id, recorded] : *processes) {
    if (targets_.Find(process_id) != nullptr) continue;
    if (const Target* before = targets_.FindRunning(recorded.tgid); before != nullptr) {
      // A reset was missed: the program is still the same. After a missed exec, heaptap:start of the new program
      // corrects the facts.
      Replace(before->process_id, process_id);
    } else {
      targets_.Add(process_id, recorded.tgid, recorder_options_.policy);
    }
  }
}

void Endings::FindUnnoticedEnds() {
  absl::StatusOr<std::map<uint64_t, Unnoticed>> ended = books_.processes().ReadUnnoticed();
  if (!ended.ok()) return Fail(ended.status());
  for (const auto& [process_id, process] : *ended) {
    if (closed_.contains(process_id)) continue;
    if (process.cause == Unnoticed::Cause::kReset) {
      // A known target goes on with other books, and is replaced where those are found.
      if (targets_.Find(process_id) == nullptr) Close(process_id);
      continue;
    }
    const Target* before = FindReset(process.tgid, *ended);
    if (process.cause == Unnoticed::Cause::kExec) {
      if (before != nullptr) Close(before->process_id);
      Close(process_id);
      continue;
    }
    if (before != nullptr) Replace(before->process_id, process_id);
    Handle(targets_.Add(process_id, process.tgid, recorder_options_.policy),
           {.status = static_cast<int>(process.status),
            .by_oom_kill = process.by_oom_kill,
            .peak = process.peak_weight,
            .time = absl::Now(),
            .space = nullptr});
  }
}

const Target* Endings::FindReset(pid_t pid, const std::map<uint64_t, Unnoticed>& ended) const {
  for (const auto& [process_id, target] : targets_) {
    const auto end = ended.find(process_id);
    if (target.pid == pid && end != ended.end() && end->second.cause == Unnoticed::Cause::kReset) return &target;
  }
  return nullptr;
}

Target& Endings::Replace(uint64_t ended_id, uint64_t new_id) {
  Target& target = targets_.Replace(ended_id, new_id);
  Close(ended_id);
  return target;
}

// Done first, because the next sweep removes the marks of closed processes.
void Endings::ForgetClosedByPredecessor() {
  absl::StatusOr<std::map<uint64_t, std::vector<bpf::TallyEntry>>> tallies = books_.entries().ReadAllTallies();
  absl::StatusOr<std::set<uint64_t>> closed = books_.ReadClosed();
  if (!tallies.ok() || !closed.ok()) return;
  for (const uint64_t process_id : *closed) {
    if (tallies->contains(process_id) || books_.processes().IsUnnoticed(process_id)) closed_.insert(process_id);
  }
  ForgetClosed();
}

// Closes books of processes whose end no event will report.
void Endings::FinishOrphans(absl::FunctionRef<void()> pump) {
  absl::StatusOr<std::map<uint64_t, std::vector<bpf::TallyEntry>>> tallies = books_.entries().ReadAllTallies();
  absl::StatusOr<std::map<uint64_t, bpf::RecordedProcess>> processes = books_.processes().ReadAll();
  absl::StatusOr<std::set<uint64_t>> closed = books_.ReadClosed();
  if (!tallies.ok() || !closed.ok() || !processes.ok()) return;
  // Handles processes that began or ended during the reading.
  pump();
  for (const auto& [process_id, entries] : *tallies) {
    if (closed->contains(process_id) || closed_.contains(process_id)) continue;
    if (!processes->contains(process_id) && targets_.Find(process_id) == nullptr) {
      Handle(targets_.Add(process_id, 0, recorder_options_.policy), {.is_known = false, .time = absl::Now()});
    }
  }
}

// Ends targets that the kernel no longer knows: an ignored process sends no event for its exec, and the event of an end
// may have been dropped. Two looks are needed, because an event that did arrive is handled before the second one.
void Endings::EndMissing(const std::map<uint64_t, bpf::RecordedProcess>& processes) {
  for (auto& [process_id, target] : targets_) {
    if (target.ending.has_value()) continue;
    const bool was_missing = std::exchange(target.is_missing, !processes.contains(process_id));
    if (was_missing && target.is_missing) EndUnseen(target);
  }
}

void Endings::EndUnseen(Target& target) {
  // The mappings under this PID may belong to another process by now.
  const bool is_used_again = std::any_of(targets_.begin(), targets_.end(), [&](const auto& entry) {
    return &entry.second != &target && entry.second.pid == target.pid && !entry.second.ending.has_value();
  });
  Handle(target, {.time = absl::Now(), .space = is_used_again ? std::make_shared<AddressSpace>() : nullptr});
}

}  // namespace heaptap::recording
