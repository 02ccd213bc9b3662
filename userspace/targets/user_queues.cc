// SPDX-License-Identifier: Apache-2.0
#include "userspace/targets/user_queues.h"

#include <algorithm>
#include <utility>

namespace heaptap::recording {

UserQueues::UserQueues(const worker::Looks& looks)
    : UserQueues([&looks](pid_t pid) { return looks.PayerOf(pid); },
                 [&looks](uid_t user) { return looks.HasRoomFor(user); }) {}

UserQueues::UserQueues(std::function<uid_t(pid_t)> user_of, std::function<bool(uid_t)> has_room)
    : user_of_(std::move(user_of)), has_room_(std::move(has_room)) {}

void UserQueues::Add(pid_t pid, uint64_t process) {
  if (places_.contains(process)) return;
  const Place place = {.pid = pid, .user = user_of_(pid), .number = ++last_number_};
  places_[process] = place;
  queues_[place.user][place.number] = process;
}

void UserQueues::Forget(uint64_t process) {
  const auto found = places_.find(process);
  if (found == places_.end()) return;
  const auto queue = queues_.find(found->second.user);
  queue->second.erase(found->second.number);
  if (queue->second.empty()) queues_.erase(queue);
  places_.erase(found);
}

bool UserQueues::ServeFirst(uid_t user, absl::FunctionRef<void(uid_t, uint64_t)> serve) {
  const auto queue = queues_.find(user);
  if (queue == queues_.end() || !has_room_(user)) return false;
  const uint64_t process = queue->second.begin()->second;
  const pid_t pid = places_.at(process).pid;
  Forget(process);
  // It may have changed its user while it waited.
  if (user_of_(pid) == user) {
    serve(user, process);
  } else {
    Add(pid, process);
  }
  return true;
}

void UserQueues::Serve(absl::FunctionRef<void(uid_t, uint64_t)> serve) {
  size_t left = kMaxAtOnce;
  for (size_t users = queues_.size(); users > 0 && left > 0; users--) {
    auto queue = queues_.upper_bound(last_user_);
    if (queue == queues_.end()) queue = queues_.begin();
    if (queue == queues_.end()) return;
    last_user_ = queue->first;
    for (size_t of_user = std::min(left, kMaxOfUser); of_user > 0 && ServeFirst(last_user_, serve); of_user--) left--;
  }
}

}  // namespace heaptap::recording
