// SPDX-License-Identifier: Apache-2.0
//
// Handles the ends of targets: writes last dumps and closes books.
#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/service/control_block.h"
#include "userspace/service/messages.h"
#include "userspace/service/recorder.h"

namespace heaptap::service {
namespace {

// In a system-wide recording many processes may end in a second, and reading all tallies takes milliseconds: ends
// within this time share one reading.
constexpr absl::Duration kExitPause = absl::Milliseconds(100);

bool IsFatal(const Ending& ending) { return !ending.is_known || (ending.status & 0x7f) != 0; }

}  // namespace

void Recorder::HandleExit(Target& target, Ending ending) {
  if (target.ending.has_value()) return;
  if (target.name.empty()) {
    // A process has the name of its first thread.
    if (absl::StatusOr<bpf::ThreadName> name = books_->ReadThreadName(target.process_id, target.pid); name.ok()) {
      target.name = Printable(name->name);
    }
  }
  if (!target.started && states_.has_value()) {
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
  if (FindRunning(target.pid) == nullptr) {
    std::shared_ptr<const AddressSpace> space = spaces_.Take(target.pid);
    if (target.ending->space == nullptr) target.ending->space = std::move(space);
  }
  to_close_.insert(target.process_id);
}

void Recorder::CloseEnded(absl::Time now) {
  // A process's own last dump may still be in progress. A system-wide recording does not block on it.
  const auto waits = [&](uint64_t process_id) {
    return options_.system_wide.has_value() && answers_.IsRunning(process_id);
  };
  if (std::all_of(to_close_.begin(), to_close_.end(), waits)) return;
  if (options_.system_wide.has_value() && now - exits_handled_ < kExitPause) return;
  exits_handled_ = now;
  absl::StatusOr<std::map<uint64_t, std::vector<bpf::TallyEntry>>> tallies = books_->ReadAllTallies();
  if (!tallies.ok()) return Fail(tallies.status());
  std::vector<Target*> closing;
  for (const uint64_t process_id : std::exchange(to_close_, {})) {
    Target* target = FindTarget(process_id);
    if (target == nullptr) continue;
    if (waits(process_id)) {
      to_close_.insert(process_id);
      continue;
    }
    closing.push_back(target);
  }
  if (options_.show_books) {
    std::vector<const Target*> shown;
    std::copy_if(closing.begin(), closing.end(), std::back_inserter(shown),
                 [&](const Target* target) { return HasProfile(*target, !(*tallies)[target->process_id].empty()); });
    SayBooks(std::move(shown));
  }
  for (Target* target : closing) CloseOne(*target, (*tallies)[target->process_id]);
}

void Recorder::CloseOne(Target& target, const std::vector<bpf::TallyEntry>& tallies) {
  const uint64_t process_id = target.process_id;
  // If the process's own final dump failed, the collector writes one.
  if (answers_.WaitFor(process_id) != 0) {
    failed_ = true;
    target.own_final = false;
  }
  const bool has_profile = HasProfile(target, !tallies.empty());
  // A process with a final dump of its own gets no second one, unless -o was given.
  const bool is_written = target.own_final && !options_.prefix_given;
  const bool is_wanted = target.policy.dump_at_exit == DumpAtExit::kAlways ||
                         (target.policy.dump_at_exit == DumpAtExit::kFatal && IsFatal(*target.ending));
  // Short-lived processes, such as the helpers of a shell script, often end before their first sample.
  const bool is_empty = tallies.empty();
  if (has_profile && is_empty && !is_written && !options_.system_wide.has_value()) {
    without_samples_.push_back(target.name);
  }
  std::string path;
  if (has_profile && !is_written && is_wanted && !is_empty && !IsLeftToOther(target)) {
    const profile::Profile profile = Build(target, tallies);
    if (absl::StatusOr<std::string> written = WriteDump(target, HEAPTAP_DUMP_FINAL, profile); written.ok()) {
      path = *std::move(written);
      // At once, so that the next collector does not write it again.
      if (pins_.has_value()) books_->MarkClosed(process_id);
      if (!target.own_final && !options_.system_wide.has_value()) SayLeaks(target, profile.Leaks(), path);
    }
  }
  if (has_profile && is_written && !options_.system_wide.has_value()) {
    if (!options_.follow) Say(absl::StrCat("process ", target.pid, " wrote its last dump itself"));
    AddStackEnds(Build(target, tallies));
  }
  if (options_.system_wide.has_value() && has_profile) {
    ended_.push_front({.summary = Summarise(target, tallies),
                       .ended = target.ending->time,
                       .status = target.ending->status,
                       .by_oom_kill = target.ending->by_oom_kill,
                       .dump = path});
    if (ended_.size() > kMaxEnded) ended_.pop_back();
  }
  Close(process_id);
}

// Whether another living collector records the process too, and so writes its last dump.
bool Recorder::IsLeftToOther(const Target& target) const {
  return target.foreign && ProcessName(target.other_collector) == kCollectorName;
}

void Recorder::Close(uint64_t process_id) {
  newcomers_.erase(process_id);
  answers_.Drop(process_id);
  targets_.erase(process_id);  // absent if only the previous recorder knew it
  closed_.insert(process_id);
  if (!pins_.has_value()) return;
  books_->MarkClosed(process_id);
  states_->Remove(process_id);
}

void Recorder::ForgetClosed() {
  if (closed_.empty()) return;
  if (absl::Status status = books_->Forget(std::exchange(closed_, {})); !status.ok()) Fail(status);
}

void Recorder::FindUnnoticed() {
  events_lost_ = books_->EventsLost();
  // Ends come first, because PIDs may have been reused.
  FindUnnoticedEnds();
  absl::StatusOr<std::map<uint64_t, bpf::RecordedProcess>> processes = books_->ReadProcesses();
  if (!processes.ok()) return Fail(processes.status());
  for (const auto& [process_id, recorded] : *processes) {
    if (FindTarget(process_id) != nullptr) continue;
    if (const Target* before = FindRunning(recorded.tgid); before != nullptr) {
      // A reset was missed: the program is still the same. After a missed exec, heaptap:start of the new program
      // corrects the facts.
      Replace(before->process_id, process_id);
    } else {
      AddTarget(process_id, recorded.tgid);
    }
  }
}

void Recorder::FindUnnoticedEnds() {
  absl::StatusOr<std::map<uint64_t, bpf::Books::Unnoticed>> ended = books_->ReadUnnoticed();
  if (!ended.ok()) return Fail(ended.status());
  for (const auto& [process_id, process] : *ended) {
    if (closed_.contains(process_id)) continue;
    if (process.by_exec) {
      Close(process_id);
    } else {
      HandleExit(AddTarget(process_id, process.tgid), {.status = static_cast<int>(process.status),
                                                       .by_oom_kill = process.by_oom_kill,
                                                       .peak = process.peak_weight,
                                                       .time = absl::Now(),
                                                       .space = nullptr});
    }
  }
}

}  // namespace heaptap::service
