// SPDX-License-Identifier: Apache-2.0
#include "userspace/targets/target_table.h"

#include <algorithm>
#include <utility>

#include "userspace/base/clock.h"

namespace heaptap::recording {
namespace {

BookFigures NewBooks() { return {.since = base::WallNow(), .begun = base::Now()}; }

}  // namespace

Target& TargetTable::Insert(uint64_t process_id, Target target) {
  target.process_id = process_id;
  if (target.pid != 0) by_pid_[target.pid].push_back(process_id);
  return targets_.insert_or_assign(process_id, std::move(target)).first->second;
}

Target& TargetTable::Add(uint64_t process_id, pid_t pid, const Policy& policy) {
  const base::OneThread one_thread(thread_);
  if (Target* const known = Find(process_id); known != nullptr) return *known;
  const BookFigures books = NewBooks();
  return Insert(process_id,
                {.pid = pid, .policy = policy, .books = books, .requested = Requested{.scheduled = books.begun}});
}

Target* TargetTable::Find(uint64_t process_id) {
  const base::OneThread one_thread(thread_);
  const auto found = targets_.find(process_id);
  return found == targets_.end() ? nullptr : &found->second;
}

Target* TargetTable::FindRunning(pid_t pid) {
  const auto ids = by_pid_.find(pid);
  if (ids == by_pid_.end()) return nullptr;
  for (const uint64_t process_id : ids->second) {
    if (Target& target = targets_.at(process_id); !target.ending.has_value()) return &target;
  }
  return nullptr;
}

std::vector<uint64_t> TargetTable::WithPid(pid_t pid) const {
  const auto ids = by_pid_.find(pid);
  return ids == by_pid_.end() ? std::vector<uint64_t>() : ids->second;
}

void TargetTable::Erase(uint64_t process_id) {
  const base::OneThread one_thread(thread_);
  const auto target = targets_.find(process_id);
  if (target == targets_.end()) return;
  if (const auto ids = by_pid_.find(target->second.pid); ids != by_pid_.end()) {
    std::erase(ids->second, process_id);
    if (ids->second.empty()) by_pid_.erase(ids);
  }
  targets_.erase(target);
}

void TargetTable::Restore(Target& target, Target saved) {
  saved.process_id = target.process_id;
  saved.policy = target.policy;
  if (target.pid != 0) saved.pid = target.pid;
  if (target.pid != saved.pid) by_pid_[saved.pid].push_back(saved.process_id);
  target = std::move(saved);
}

Target& TargetTable::Replace(uint64_t ended_id, uint64_t new_id) {
  Target target = std::move(targets_.at(ended_id));
  Erase(ended_id);
  target.books = Part<BookFigures, Everyone>(NewBooks());
  target.is_saved = false;
  // Orders about the former books no longer find the target.
  Control control = *target.control;
  control.is_writing = false;
  target.control = Part<Control, Controls>(std::move(control));
  return Insert(new_id, std::move(target));
}

void TargetTable::clear() {
  targets_.clear();
  by_pid_.clear();
}

}  // namespace heaptap::recording
