// SPDX-License-Identifier: Apache-2.0
#include "userspace/profiles/counted_names.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace heaptap::recording {

void CountedNames::Add(const std::string& name) {
  processes_++;
  if (counts_.size() < kMost || counts_.contains(name)) {
    counts_[name]++;
  } else {
    has_more_ = true;
  }
}

std::string CountedNames::Text() const {
  std::vector<std::string> names;
  for (const auto& [name, count] : counts_) {
    names.push_back(count == 1 ? name : absl::StrCat(name, " (", count, " times)"));
  }
  if (has_more_) names.emplace_back("...");
  return absl::StrJoin(names, ", ");
}

}  // namespace heaptap::recording
