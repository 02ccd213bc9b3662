// SPDX-License-Identifier: Apache-2.0
#include "userspace/elf/mappings.h"

#include <utility>

namespace heaptap::elf {

bool Mappings::Add(Mapping mapping) {
  if (mapping.start >= mapping.end) return false;
  // A mapping that splits another one adds two.
  if (by_start_.size() + 2 > kMaxMappings) return false;
  if (path_bytes_ + mapping.path.size() > kMaxPathBytes) return false;

  auto next = by_start_.lower_bound(mapping.start);
  if (next != by_start_.begin()) {
    Mapping& before = std::prev(next)->second;
    if (before.end > mapping.end) {
      Mapping rest = before;
      rest.start = mapping.end;
      rest.file_offset += mapping.end - before.start;
      path_bytes_ += rest.path.size();
      next = by_start_.emplace_hint(next, rest.start, std::move(rest));
    }
    if (before.end > mapping.start) before.end = mapping.start;
  }
  while (next != by_start_.end() && next->first < mapping.end) {
    auto covered = by_start_.extract(next++);
    Mapping& old = covered.mapped();
    if (old.end <= mapping.end) {
      path_bytes_ -= old.path.size();
      continue;
    }
    old.file_offset += mapping.end - old.start;
    old.start = mapping.end;
    covered.key() = mapping.end;
    next = by_start_.insert(std::move(covered)).position;
  }
  path_bytes_ += mapping.path.size();
  by_start_.emplace_hint(next, mapping.start, std::move(mapping));
  return true;
}

const Mapping* Mappings::Find(uint64_t address) const {
  auto after = by_start_.upper_bound(address);
  if (after == by_start_.begin()) return nullptr;
  const Mapping& mapping = std::prev(after)->second;
  return address < mapping.end ? &mapping : nullptr;
}

}  // namespace heaptap::elf
