// SPDX-License-Identifier: Apache-2.0
#include "userspace/base/turns.h"

#include <algorithm>

#include "userspace/base/mutex.h"

namespace heaptap::base {
namespace {

// All last turns are forgotten once this number of users have had turns without a moment in which nobody waited. Fewer
// threads than this can wait, so a user then waits for at most one more turn of each other user.
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
  // Among users with the same last turn, the one that has waited longest is next.
  const auto next = std::ranges::min_element(waiting_, {}, last_turn);
  (*next)->has_turn = true;
  last_[(*next)->user] = ++turns_;
  waiting_.erase(next);
}

}  // namespace heaptap::base
