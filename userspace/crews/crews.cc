// SPDX-License-Identifier: Apache-2.0
#include "userspace/crews/crews.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "userspace/base/clock.h"
#include "userspace/base/mutex.h"
#include "userspace/base/user_ids.h"

namespace heaptap::worker {
namespace {

// How many crews try to do a job.
constexpr int kMaxAttempts = 2;

// Whether another crew is tried. Somebody may have killed the crew, which is not the file's fault; a file that kills
// its crew does so again.
bool IsLost(const absl::Status& status) { return absl::IsUnavailable(status) || absl::IsAborted(status); }

}  // namespace

Crews::Crews(Urgency urgency) : urgency_(urgency), cancelled_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void Crews::Cancel() {
  eventfd_write(cancelled_.get(), 1);
  base::MutexLock lock(&mutex_);
  is_cancelled_ = true;
}

absl::Status Crews::Begin(base::Instant deadline) {
  base::MutexLock lock(&mutex_);
  const auto is_over = [this]()
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return at_work_ < kMaxAtWork || is_cancelled_; };
  if (!base::AwaitUntil(mutex_, absl::Condition(&is_over), deadline))
    return absl::UnavailableError("all workers are busy");
  if (is_cancelled_) return absl::CancelledError("the collector ends");
  at_work_++;
  return absl::OkStatus();
}

void Crews::EndJob() {
  base::MutexLock lock(&mutex_);
  at_work_--;
}

Answer Crews::DoByHands(const Request& request, const Limits& limits) {
  const base::Instant deadline = base::Now() + limits.time;
  if (absl::Status begun = Begin(deadline); !begun.ok()) return {.status = begun};
  const absl::Cleanup done = [this] { EndJob(); };
  for (int attempt = 1;; attempt++) {
    absl::StatusOr<std::unique_ptr<Crew>> started = Crew::StartHands();
    if (!started.ok()) return {.status = started.status()};
    Answer answer = DoBefore(deadline, **started, request, limits);
    if ((*started)->is_usable() || attempt == kMaxAttempts || !IsLost(answer.status)) return answer;
  }
}

Answer Crews::DoBefore(base::Instant deadline, Crew& crew, const Request& request, Limits limits) {
  limits.time = deadline - base::Now();
  limits.cancel = cancelled_.get();
  Answer answer = crew.Do(request, limits);
  answer.processor_wait = crew.TakeProcessorWait();
  return answer;
}

Answer Crews::Do(uid_t user, const Request& request, const Limits& limits) {
  const base::Instant deadline = base::Now() + limits.time;
  if (absl::Status begun = Begin(deadline); !begun.ok()) return {.status = begun};
  const absl::Cleanup done = [this] { EndJob(); };
  std::unique_ptr<Crew> crew;
  {
    base::MutexLock lock(&mutex_);
    const auto own = std::find_if(idle_.begin(), idle_.end(), [&](const Idle& idle) { return idle.user == user; });
    if (own != idle_.end()) {
      crew = std::move(own->crew);
      idle_.erase(own);
    }
  }
  for (int attempt = 1;; attempt++) {
    if (crew == nullptr) {
      absl::StatusOr<std::unique_ptr<Crew>> started = Crew::Start(urgency_);
      if (!started.ok()) return {.status = started.status()};
      crew = *std::move(started);
      base::MutexLock lock(&mutex_);
      started_++;
    }
    Answer answer = DoBefore(deadline, *crew, request, limits);
    if (crew->is_usable()) {
      if (user == base::kUnknownUser) return answer;
      base::MutexLock lock(&mutex_);
      idle_.push_back({user, base::Now(), std::move(crew)});
      if (idle_.size() > kMaxIdle) idle_.pop_front();
      return answer;
    }
    crew = nullptr;
    if (attempt == kMaxAttempts || !IsLost(answer.status)) return answer;
  }
}

uint64_t Crews::started() {
  base::MutexLock lock(&mutex_);
  return started_;
}

void Crews::EndIdle(base::Instant now) {
  ReapKilled();
  base::MutexLock lock(&mutex_);
  while (!idle_.empty() && now - idle_.front().since > kMaxIdleTime) idle_.pop_front();
}

}  // namespace heaptap::worker
