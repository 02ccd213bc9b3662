// SPDX-License-Identifier: Apache-2.0
#include "userspace/base/bounds.h"

#include <array>
#include <atomic>
#include <cstddef>

namespace heaptap::base {
namespace {

// By enum Bound.
constexpr std::array kNames = {"files_of_process", "files_to_read", "mappings",   "refused",
                               "connections",      "client_time",   "answer_room"};
static_assert(kNames.size() == static_cast<size_t>(Bound::kAnswerRoom) + 1);

std::array<std::atomic<uint64_t>, kNames.size()>& Counters() {
  static std::array<std::atomic<uint64_t>, kNames.size()> counters = {};
  return counters;
}

}  // namespace

void CountBeyond(Bound bound) { Counters()[static_cast<size_t>(bound)]++; }

std::map<std::string, uint64_t> CountsBeyondBounds() {
  std::map<std::string, uint64_t> counts;
  for (size_t i = 0; i < kNames.size(); i++) counts[kNames[i]] = Counters()[i];
  return counts;
}

}  // namespace heaptap::base
