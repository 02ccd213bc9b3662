// SPDX-License-Identifier: Apache-2.0
//
// How targets end: their last dumps, and their books closed.
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

// Of everyone many may end in a second, and each look at all tallies costs milliseconds: those that end within so long
// share one.
constexpr absl::Duration kExitPause = absl::Milliseconds(100);

bool IsFatal(const Ending& ending) { return !ending.is_known || (ending.status & 0x7f) != 0; }

}  // namespace

void Recorder::HandleExit(Target& target, Ending ending) {
  if (target.ending.has_value()) return;
  if (target.name.empty()) {
    // The name of its first thread is its own.
    if (absl::StatusOr<bpf::ThreadName> name = books_->ReadThreadName(target.process_id, target.pid); name.ok()) {
      target.name = Printable(name->name);
    }
  }
  if (!target.started && states_.has_value()) {
    // One that the recorder before us knew.
    if (absl::StatusOr<TargetState> state = states_->Load(target.process_id); state.ok()) {
      const Policy policy = target.policy;
      target = std::move(state->target);
      target.policy = policy;
      ending.space = std::make_shared<AddressSpace>(std::move(state->space));
    }
  }
  target.ending = std::move(ending);
  // If nobody was there when it ended, the PID may be another's by now.
  if (FindRunning(target.pid) == nullptr) {
    std::shared_ptr<const AddressSpace> space = spaces_.Take(target.pid);
    if (target.ending->space == nullptr) target.ending->space = std::move(space);
  }
  to_close_.insert(target.process_id);
}

void Recorder::CloseEnded(absl::Time now) {
  // Its own last dump may be in the writing. Among everyone nobody waits for one who makes others wait.
  const auto waits = [&](uint64_t process_id) {
    return options_.everyone.has_value() && answers_.IsRunning(process_id);
  };
  if (std::all_of(to_close_.begin(), to_close_.end(), waits)) return;
  if (options_.everyone.has_value() && now - exits_handled_ < kExitPause) return;
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
  // A final dump of its own that could not be written is none.
  if (answers_.WaitFor(process_id) != 0) {
    failed_ = true;
    target.own_final = false;
  }
  const bool has_profile = HasProfile(target, !tallies.empty());
  // Who asked for a final dump of its own gets no second one, unless -o names a place for it.
  const bool is_written = target.own_final && !options_.prefix_given;
  const bool is_wanted = target.policy.dump_at_exit == DumpAtExit::kAlways ||
                         (target.policy.dump_at_exit == DumpAtExit::kFatal && IsFatal(*target.ending));
  // Many never come to their first sample: of everyone, and the helpers of a shell script.
  const bool is_empty = tallies.empty();
  if (has_profile && is_empty && !is_written && !options_.everyone.has_value()) {
    without_samples_.push_back(target.name);
  }
  std::string path;
  if (has_profile && !is_written && is_wanted && !is_empty && !IsLeftToOther(target)) {
    const profile::Profile profile = Build(target, tallies);
    if (absl::StatusOr<std::string> written = Write(target, HEAPTAP_DUMP_FINAL, profile); written.ok()) {
      path = *std::move(written);
      // At once: a collector after this one shall not write it again.
      if (pins_.has_value()) books_->MarkClosed(process_id);
      if (!target.own_final && !options_.everyone.has_value()) SayLeaks(target, profile.Leaks(), path);
    }
  }
  if (has_profile && is_written && !options_.everyone.has_value()) {
    if (!options_.follow) Say(absl::StrCat("process ", target.pid, " has written its last dump itself"));
    AddStackEnds(Build(target, tallies));
  }
  if (options_.everyone.has_value() && has_profile) {
    ended_.push_front({.summary = Summarise(target, tallies),
                       .ended = target.ending->time,
                       .status = target.ending->status,
                       .by_oom_kill = target.ending->by_oom_kill,
                       .dump = path});
    if (ended_.size() > kMaxEnded) ended_.pop_back();
  }
  Close(process_id);
}

// Another collector that records the process too writes its last dump.
bool Recorder::IsLeftToOther(const Target& target) const {
  return target.foreign && ProcessName(target.other_collector) == kCollectorName;
}

void Recorder::Close(uint64_t process_id) {
  newcomers_.erase(process_id);
  answers_.Drop(process_id);
  targets_.erase(process_id);  // may have been known to the recorder before us only
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
  // Ends come first: by now the PID may be another process's.
  FindUnnoticedEnds();
  absl::StatusOr<std::map<uint64_t, bpf::RecordedProcess>> processes = books_->ReadProcesses();
  if (!processes.ok()) return Fail(processes.status());
  for (const auto& [process_id, recorded] : *processes) {
    if (FindTarget(process_id) != nullptr) continue;
    if (const Target* before = FindRunning(recorded.tgid); before != nullptr) {
      // After a reset it is the same program; after an exec the new one tells of itself.
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
