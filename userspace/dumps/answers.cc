// SPDX-License-Identifier: Apache-2.0
#include "userspace/dumps/answers.h"

#include <algorithm>
#include <utility>

#include "userspace/base/clock.h"
#include "userspace/base/messages.h"
#include "userspace/base/user_ids.h"

namespace heaptap::recording {
bool Answers::HasRoom(uint64_t process_id, std::optional<uid_t> user) const {
  if (running_.size() >= kMaxRunning) return false;
  size_t of_process = 0;
  size_t of_user = 0;
  for (const Running& one : running_) {
    of_process += one.process_id == process_id ? 1 : 0;
    // Without a user, requests of processes that are not recorded would count too; these have a bound of their own.
    const bool is_of_anybody = !user.has_value() && one.process_id == kUnrecorded;
    of_user += one.user == user && !is_of_anybody ? 1 : 0;
  }
  if (process_id == kUnrecorded) return of_process < kMaxRunningOfUnrecorded;
  return of_process < kMaxRunningOfOne && (user == base::kRoot || of_user < kMaxRunningOfUser);
}

void Answers::Start(Place place, pid_t pid, std::string answer, std::function<bool()> is_current,
                    std::function<void(bool is_ok)> done) {
  errands_.Start(place->user.value_or(base::kUnknownUser),
                 {.job = worker::Job::kAnswer,
                  .file = {.pid = pid},
                  .question = std::move(answer),
                  .confirm = std::move(is_current)},
                 {.time = limit_},
                 [this, place, is_recorded = place->process_id != kUnrecorded,
                  done = std::move(done)](const worker::Answer& written) {
                   const uint64_t process_id = place->process_id;
                   running_.erase(place);
                   const bool is_ok = written.status.ok();
                   if (!is_ok && process_id != kUnrecorded) failures_[process_id]++;
                   if (!is_ok && is_recorded) {
                     base::Say(absl::IsDeadlineExceeded(written.status)
                                   ? "gave up writing a dump that a process asked for: its file or its memory blocked "
                                     "too long"
                                   : written.status.message());
                   }
                   done(is_ok);
                 });
}

bool Answers::IsRunning(uint64_t process_id) const {
  return std::ranges::any_of(running_, [&](const Running& one) { return one.process_id == process_id; });
}

void Answers::Drop(uint64_t process_id) {
  failures_.erase(process_id);
  for (Running& one : running_) {
    if (one.process_id == process_id) one.process_id = kUnrecorded;
  }
}

int Answers::WaitFor(uint64_t process_id) {
  errands_.WaitUntil([&] { return !IsRunning(process_id); }, base::Now() + limit_ + absl::Seconds(1));
  const auto failures = failures_.extract(process_id);
  return failures.empty() ? 0 : failures.mapped();
}

void Answers::WaitForAll() {
  errands_.WaitUntil([&] { return running_.empty(); }, base::Now() + limit_ + absl::Seconds(1));
}

}  // namespace heaptap::recording
