// SPDX-License-Identifier: Apache-2.0
#include "userspace/report/root_names.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/printable_text.h"
#include "userspace/profile/ages.h"

namespace heaptap::report {
namespace {

// "10 min". `seconds`: one of kAges, which are all whole numbers of a unit.
std::string AgeText(uint32_t seconds) {
  constexpr std::pair<uint32_t, const char*> kUnits[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
  for (const auto& [length, unit] : kUnits) {
    if (seconds % length == 0) return absl::StrCat(seconds / length, " ", unit);
  }
  return "";
}

}  // namespace

std::string NameOfThread(const profile::Profile& profile, uint32_t tid) {
  if (tid == 0) return "threads that have ended";
  const auto name = profile.thread_names.find(tid);
  const bool has_name = name != profile.thread_names.end() && !name->second.empty();
  if (profile::IsHeap(tid) && has_name) return base::Printable(name->second);
  return absl::StrCat("thread ", tid, has_name ? " " : "", has_name ? base::Printable(name->second) : "");
}

std::string NameOfSize(uint64_t bytes) { return absl::StrCat("blocks of ", bytes, " bytes"); }

std::string NameOfAge(uint32_t seconds) {
  const auto begin = std::ranges::find(profile::kAges, seconds);
  if (begin == profile::kAges.end()) return "of unknown age";
  const auto end = begin + 1;
  if (end == profile::kAges.end()) return absl::StrCat("older than ", AgeText(*begin));
  if (*begin == 0) return absl::StrCat("younger than ", AgeText(*end));
  return absl::StrCat(AgeText(*begin), " to ", AgeText(*end));
}

}  // namespace heaptap::report
