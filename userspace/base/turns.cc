// SPDX-License-Identifier: Apache-2.0
#include "userspace/base/turns.h"

#include <algorithm>

#include "userspace/base/mutex.h"

namespace heaptap::base {
namespace {

// Beyond this number of users without a moment in which nobody waited, all last turns are forgotten. There are fewer
// threads than this that can wait, so it costs a user one more turn of each at most.
constexpr size_t kMaxUsers = 1024;

}  // namespace

Turns::Turn Turns::Wait(const User& user, Instant deadline) {
  Waiter me = {.user = user.has_value() ? User(ids_.OwnerOf(*user)) : user};
  MutexLock lock(&mutex_);
  waiting_.push_back(&me);
  if (!is_taken_) Pass();
  AwaitUntil(mutex_, absl::Condition(&me.has_turn), deadline);
  if (me.has_turn) return Turn(this);
  waiting_.remove(&me);
  return nullptr;
}

void Turns::EndTurn() {
  MutexLock lock(&mutex_);
  Pass();
}

void Turns::Pass() {
  is_taken_ = !waiting_.empty();
  if (!is_taken_ || last_.size() >= kMaxUsers) last_.clear();
  if (!is_taken_) return;
  const auto last_turn = [this](const Waiter* waiter) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto found = last_.find(waiter->user);
    return found == last_.end() ? 0 : found->second;
  };
  // The first of those with the same last turn.
  const auto next = std::ranges::min_element(waiting_, {}, last_turn);
  (*next)->has_turn = true;
  last_[(*next)->user] = ++turns_;
  waiting_.erase(next);
}

}  // namespace heaptap::base
