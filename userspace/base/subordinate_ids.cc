// SPDX-License-Identifier: Apache-2.0
#include "userspace/base/subordinate_ids.h"

#include <pwd.h>

#include <bit>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace heaptap::base {
namespace {

// A name that is not a number is looked up in the user database.
std::optional<uid_t> FindUser(const std::string& name) {
  passwd entry;
  passwd* found = nullptr;
  std::vector<char> buffer(1 << 14);
  if (getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) {
    return std::nullopt;
  }
  return found->pw_uid;
}

}  // namespace

SubordinateIds::SubordinateIds(absl::string_view text,
                               const std::function<std::optional<uid_t>(const std::string&)>& find_user) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ':');
    uid_t first = 0;
    uint64_t count = 0;
    if (fields.size() != 3 || !absl::SimpleAtoi(fields[1], &first) || !absl::SimpleAtoi(fields[2], &count)) continue;
    if (count == 0 || count > uint64_t{std::numeric_limits<uid_t>::max()} - first) continue;
    uid_t number = 0;
    const std::optional<uid_t> owner =
        absl::SimpleAtoi(fields[0], &number) ? number : find_user(std::string(fields[0]));
    if (owner.has_value()) by_first_[first] = {.last = static_cast<uid_t>(first + count - 1), .owner = *owner};
  }
}

SubordinateIds SubordinateIds::OfSystem() {
  std::ifstream file("/etc/subuid");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return SubordinateIds(text, FindUser);
}

uid_t SubordinateIds::OwnerOf(uid_t user) const {
  auto range = by_first_.upper_bound(user);
  if (range == by_first_.begin()) return user;
  --range;
  return user <= range->second.last ? range->second.owner : user;
}

std::vector<SubordinateIds::Block> SubordinateIds::Blocks() const {
  std::vector<Block> blocks;
  for (const auto& [begin, range] : by_first_) {
    const uint64_t end = uint64_t{range.last} + 1;
    for (uint64_t first = begin; first < end;) {
      int free_bits = first == 0 ? std::numeric_limits<uid_t>::digits : std::countr_zero(first);
      while (first + (uint64_t{1} << free_bits) > end) free_bits--;
      blocks.push_back({.first = static_cast<uid_t>(first),
                        .bits = static_cast<uint32_t>(std::numeric_limits<uid_t>::digits - free_bits),
                        .owner = range.owner});
      first += uint64_t{1} << free_bits;
    }
  }
  return blocks;
}

}  // namespace heaptap::base
