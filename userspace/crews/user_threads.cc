// SPDX-License-Identifier: Apache-2.0
#include "userspace/crews/user_threads.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "userspace/base/mutex.h"
#include "userspace/base/require.h"
#include "userspace/base/threads.h"
#include "userspace/base/user_ids.h"
#include "userspace/process/proc_files.h"

namespace heaptap::worker {
namespace {

// The pause between two looks at accounts that were used up.
constexpr absl::Duration kLongestWait = absl::Milliseconds(20);

// Does the work, in a thread that was started at `begin`. Returns how long it took, without the time in which it only
// waited for a processor.
absl::Duration TimeOf(const UserThreads::Work& work, base::Instant begin) {
  const absl::Duration processor_wait = work();
  const absl::Duration own_wait = process::ProcessorWaitOf(gettid());
  return std::max(base::Now() - begin - processor_wait - own_wait, absl::ZeroDuration());
}

}  // namespace

UserThreads::UserThreads(const Bounds& bounds, base::SubordinateIds ids)
    : bounds_(bounds),
      accounts_(std::move(ids), bounds.share, bounds.burst),
      is_done_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

UserThreads::~UserThreads() {
  for (const std::shared_ptr<Job>& job : under_way_) {
    if (job->thread.joinable()) job->thread.join();
  }
}

bool UserThreads::HasRoom(uid_t user) const {
  if (bounds_.is_in_caller) return true;
  const auto state = users_.find(accounts_.ids().OwnerOf(user));
  return state == users_.end() || state->second.waiting.size() < bounds_.waiting;
}

UserThreads::Id UserThreads::Start(uid_t user, Work work, Done done) {
  const base::OneThread one_thread(user_);
  HEAPTAP_REQUIRE(HasRoom(user));
  if (bounds_.is_in_caller) {
    work();
    done();
    return ++last_id_;
  }
  user = accounts_.ids().OwnerOf(user);
  users_[user].waiting.push_back(std::make_shared<Job>(
      Job{.id = ++last_id_, .user = user, .queues = {user}, .work = std::move(work), .done = std::move(done)}));
  const Id id = last_id_;
  Dispatch();
  return id;
}

void UserThreads::Refuse(uid_t user, Done done) {
  user = accounts_.ids().OwnerOf(user);
  users_[user].under_way++;
  under_way_.push_back(std::make_shared<Job>(
      Job{.id = ++last_id_, .user = user, .queues = {}, .work = nullptr, .done = std::move(done)}));
  NoteDone(*under_way_.back());
}

void UserThreads::Join(uid_t user, Id id, uid_t other) {
  other = accounts_.ids().OwnerOf(other);
  const auto state = users_.find(accounts_.ids().OwnerOf(user));
  if (state == users_.end() || !HasRoom(other)) return;
  const auto found = std::ranges::find(state->second.waiting, id, &Job::id);
  if (found == state->second.waiting.end() || std::ranges::count((*found)->queues, other) != 0) return;
  const std::shared_ptr<Job> job = *found;
  job->queues.push_back(other);
  users_[other].waiting.push_back(job);
  Dispatch();
}

void UserThreads::Hasten(uid_t user, Id id) {
  const auto state = users_.find(accounts_.ids().OwnerOf(user));
  if (state == users_.end()) return;
  std::deque<std::shared_ptr<Job>>& waiting = state->second.waiting;
  const auto found = std::ranges::find(waiting, id, &Job::id);
  if (found != waiting.end()) std::rotate(waiting.begin(), found, found + 1);
}

void UserThreads::NoteDone(Job& job) {
  base::MutexLock lock(&mutex_);
  done_.push_back(&job);
  eventfd_write(is_done_.get(), 1);
}

bool UserThreads::MayBegin(uid_t user, const User& state, base::Instant now) {
  if (state.waiting.empty()) return false;
  return state.under_way < (user == base::kRoot ? bounds_.of_root : bounds_.of_user) && accounts_.HasTime(user, now);
}

void UserThreads::Dispatch() {
  const base::Instant now = base::Now();
  // Begins after the user who was served last.
  for (size_t left = users_.size(); left > 0 && under_way_.size() < bounds_.of_all; left--) {
    auto next = users_.upper_bound(last_served_);
    if (next == users_.end()) next = users_.begin();
    auto& [user, state] = *next;
    last_served_ = user;
    if (state.waiting.empty() && state.under_way == 0) {
      users_.erase(next);
    } else if (MayBegin(user, state, now)) {
      std::shared_ptr<Job> job = state.waiting.front();
      state.waiting.pop_front();
      for (const uid_t queue : job->queues) {
        if (queue != user) std::erase(users_[queue].waiting, job);
      }
      job->user = user;
      state.under_way++;
      Begin(std::move(job));
      left = users_.size() + 1;
    }
  }
}

void UserThreads::Begin(std::shared_ptr<Job> job) {
  Job& begun = *under_way_.emplace_back(std::move(job));
  absl::StatusOr<std::thread> thread = base::StartThread([this, &begun, begin = base::Now()] {
    begun.used = TimeOf(begun.work, begin);
    NoteDone(begun);
  });
  if (thread.ok()) {
    begun.thread = *std::move(thread);
  } else {
    // The owner waits, which is better than work that is never done.
    begun.work();
    NoteDone(begun);
  }
}

void UserThreads::HandleDone() {
  const base::OneThread one_thread(user_);
  std::vector<Job*> done;
  {
    base::MutexLock lock(&mutex_);
    // An idle collector makes no system call for that.
    eventfd_t count;
    if (!done_.empty()) eventfd_read(is_done_.get(), &count);
    done = std::exchange(done_, {});
  }
  std::vector<std::shared_ptr<Job>> jobs;
  for (Job* const one : done) {
    if (one->thread.joinable()) one->thread.join();
    const auto found = std::ranges::find(under_way_, one, [](const auto& job) { return job.get(); });
    jobs.push_back(std::move(*found));
    under_way_.erase(found);
    users_[one->user].under_way--;
    accounts_.Charge(one->user, one->used, base::Now());
  }
  Dispatch();
  for (const std::shared_ptr<Job>& job : jobs) job->done();
}

bool UserThreads::IsIdle() const {
  return under_way_.empty() &&
         std::ranges::all_of(users_, [](const auto& user) { return user.second.waiting.empty(); });
}

bool UserThreads::WaitUntil(absl::FunctionRef<bool()> is_over, base::Instant deadline) {
  for (;;) {
    HandleDone();
    if (is_over()) return true;
    if (base::Now() > deadline) return false;
    pollfd polled = {is_done_.get(), POLLIN, 0};
    base::PollUntil(absl::MakeSpan(&polled, 1), base::Now() + kLongestWait);
  }
}

}  // namespace heaptap::worker
