// SPDX-License-Identifier: Apache-2.0
#include "userspace/attach/idle_files.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace heaptap::recording {

void IdleFiles::NoteAttached(File file, bool is_lasting) {
  since_.erase(file);
  if (is_lasting) {
    lasting_.insert(file);
  } else {
    lasting_.erase(file);
  }
}

std::set<IdleFiles::File> IdleFiles::Due(const std::set<File>& unused, base::Instant now) {
  std::erase_if(since_, [&](const auto& idle) { return !unused.contains(idle.first); });
  std::set<File> due;
  std::vector<std::pair<base::Instant, File>> waiting;
  for (const File file : unused) {
    if (!lasting_.contains(file)) {
      due.insert(file);
      continue;
    }
    const base::Instant since = since_.try_emplace(file, now).first->second;
    if (now - since >= kLasting) {
      due.insert(file);
    } else {
      waiting.emplace_back(since, file);
    }
  }
  std::sort(waiting.begin(), waiting.end());
  for (size_t i = 0; i + kMostLasting < waiting.size(); i++) due.insert(waiting[i].second);
  return due;
}

}  // namespace heaptap::recording
