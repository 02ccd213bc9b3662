// SPDX-License-Identifier: Apache-2.0
#include "userspace/recording/target_table.h"

#include <algorithm>
#include <utility>

#include "userspace/base/clock.h"

namespace heaptap::recording {
namespace {

BookFigures NewBooks() { return {.since = base::WallNow(), .begun = base::Now()}; }

}  // namespace

Target& TargetTable::Add(uint64_t process_id, pid_t pid, const Policy& policy) {
  auto [found, is_new] = targets_.try_emplace(process_id);
  Target& target = found->second;
  if (!is_new) return target;
  target.process_id = process_id;
  target.pid = pid;
  target.books = NewBooks();
  target.dumped = target.books.begun;
  target.policy = policy;
  return target;
}

Target* TargetTable::Find(uint64_t process_id) {
  const auto found = targets_.find(process_id);
  return found == targets_.end() ? nullptr : &found->second;
}

Target* TargetTable::FindRunning(pid_t pid) {
  for (auto& [process_id, target] : targets_) {
    if (target.pid == pid && !target.ending.has_value()) return &target;
  }
  return nullptr;
}

bool TargetTable::Has(pid_t pid) const {
  return std::ranges::any_of(targets_, [&](const auto& entry) { return entry.second.pid == pid; });
}

Target& TargetTable::Replace(uint64_t ended_id, uint64_t new_id) {
  Target target = std::move(targets_.at(ended_id));
  target.process_id = new_id;
  target.books = NewBooks();
  targets_.erase(ended_id);
  return targets_.insert_or_assign(new_id, std::move(target)).first->second;
}

}  // namespace heaptap::recording
