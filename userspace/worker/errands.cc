// SPDX-License-Identifier: Apache-2.0
#include "userspace/worker/errands.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "userspace/base/clock.h"
#include "userspace/base/threads.h"
#include "userspace/base/user_ids.h"

namespace heaptap::worker {
namespace {

// More readers would read faster than the kernel takes the tables.
size_t MaxOfRoot() {
  return std::clamp<size_t>(std::thread::hardware_concurrency(), Errands::kMaxOfUser, Errands::kMaxOfRoot);
}

// Between two looks at accounts that were used up.
constexpr absl::Duration kLongestWait = absl::Milliseconds(20);

}  // namespace

Errands::Errands(Urgency urgency, base::SubordinateIds ids, absl::Duration burst)
    : crews_(urgency), accounts_(std::move(ids), kShare, burst), is_done_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Errands::~Errands() {
  crews_.Cancel();
  for (const std::unique_ptr<Job>& job : at_work_) {
    if (job->thread.joinable()) job->thread.join();
  }
}

Errands::JobId Errands::Start(uid_t user, Request request, const Limits& limits, Done done) {
  // Subordinate ids count as their user, but each has crews of its own.
  User& state = users_[accounts_.ids().OwnerOf(user)];
  auto job = std::make_unique<Job>(
      Job{.id = ++last_id_, .user = user, .request = std::move(request), .limits = limits, .done = std::move(done)});
  if (state.waiting.size() < kMaxWaiting) {
    state.waiting.push_back(std::move(job));
    Dispatch();
    return last_id_;
  }
  job->answer.status = absl::UnavailableError("too many files of this user wait to be read");
  job->begin = base::Now();
  state.at_work++;
  at_work_.push_back(std::move(job));
  NoteDone(*at_work_.back());
  return last_id_;
}

void Errands::Hasten(uid_t user, JobId job) {
  const auto state = users_.find(accounts_.ids().OwnerOf(user));
  if (state == users_.end()) return;
  std::deque<std::unique_ptr<Job>>& waiting = state->second.waiting;
  const auto found = std::ranges::find(waiting, job, &Job::id);
  if (found != waiting.end()) std::rotate(waiting.begin(), found, found + 1);
}

void Errands::NoteDone(Job& job) {
  absl::MutexLock lock(&mutex_);
  done_.push_back(&job);
  eventfd_write(is_done_.get(), 1);
}

bool Errands::MayBegin(uid_t user, const User& state, base::Instant now) {
  if (state.waiting.empty()) return false;
  return state.at_work < (user == base::kRoot ? MaxOfRoot() : kMaxOfUser) && accounts_.HasTime(user, now);
}

void Errands::Dispatch() {
  const base::Instant now = base::Now();
  // Begins after the user who was served last.
  for (size_t left = users_.size(); left > 0 && at_work_.size() < Crews::kMaxAtWork; left--) {
    auto next = users_.upper_bound(last_served_);
    if (next == users_.end()) next = users_.begin();
    auto& [user, state] = *next;
    last_served_ = user;
    if (state.waiting.empty() && state.at_work == 0) {
      users_.erase(next);
    } else if (MayBegin(user, state, now)) {
      std::unique_ptr<Job> job = std::move(state.waiting.front());
      state.waiting.pop_front();
      state.at_work++;
      Begin(std::move(job));
      left = users_.size() + 1;
    }
  }
}

void Errands::Begin(std::unique_ptr<Job> job) {
  job->begin = base::Now();
  Job& begun = *at_work_.emplace_back(std::move(job));
  // Signals are for the owner's thread.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const auto work = [this, &begun] {
    begun.answer = begun.request.job == worker::Job::kAnswer ? crews_.DoByHands(begun.request, begun.limits)
                                                             : crews_.Do(begun.user, begun.request, begun.limits);
    // A dump has tens of megabytes, so it is freed here and not in the owner's thread.
    begun.request.question = {};
    NoteDone(begun);
  };
  absl::StatusOr<std::thread> thread = base::StartThread(work);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (thread.ok()) {
    begun.thread = *std::move(thread);
  } else {
    // The owner waits, which is better than an errand that is never done.
    work();
  }
}

void Errands::HandleDone() {
  std::vector<Job*> done;
  {
    absl::MutexLock lock(&mutex_);
    eventfd_t count;
    eventfd_read(is_done_.get(), &count);
    done = std::exchange(done_, {});
  }
  const base::Instant now = base::Now();
  std::vector<std::unique_ptr<Job>> jobs;
  for (Job* const one : done) {
    if (one->thread.joinable()) one->thread.join();
    const auto found =
        std::find_if(at_work_.begin(), at_work_.end(), [one](const auto& job) { return job.get() == one; });
    jobs.push_back(std::move(*found));
    at_work_.erase(found);
    const uid_t user = accounts_.ids().OwnerOf(one->user);
    users_[user].at_work--;
    accounts_.Charge(user, now - one->begin, now);
  }
  Dispatch();
  for (const std::unique_ptr<Job>& job : jobs) job->done(std::move(job->answer));
}

bool Errands::IsIdle() const {
  return at_work_.empty() && std::ranges::all_of(users_, [](const auto& user) { return user.second.waiting.empty(); });
}

bool Errands::WaitUntil(absl::FunctionRef<bool()> is_over, base::Instant deadline) {
  for (;;) {
    HandleDone();
    if (is_over()) return true;
    if (base::Now() > deadline) return false;
    pollfd polled = {is_done_.get(), POLLIN, 0};
    base::PollUntil(absl::MakeSpan(&polled, 1), base::Now() + kLongestWait);
  }
}

}  // namespace heaptap::worker
