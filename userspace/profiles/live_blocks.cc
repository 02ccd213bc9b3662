// SPDX-License-Identifier: Apache-2.0
#include "userspace/profiles/live_blocks.h"

#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "userspace/base/clock.h"
#include "userspace/profile/estimate.h"

namespace heaptap::recording {
namespace {

constexpr uint64_t kNanosecondsPerSecond = 1'000'000'000;

uint32_t AgeAt(uint64_t now, uint64_t allocated) {
  return profile::AgeOf(now > allocated ? (now - allocated) / kNanosecondsPerSecond : 0);
}

}  // namespace

absl::StatusOr<LiveBlocks> ReadLiveBlocks(const bpf::Entries& entries, uint64_t process_id) {
  const base::Instant begin = base::Now();
  LiveBlocks blocks;
  absl::flat_hash_map<std::tuple<uint64_t, uint32_t, uint64_t, uint32_t>, size_t> known;
  const absl::Status status = entries.VisitLive(process_id, [&](const heaptap_live& object) {
    const uint32_t age = AgeAt(begin.nanoseconds(), object.time);
    const auto [entry, is_new] =
        known.try_emplace({object.stack_id, object.tid, object.size, age}, blocks.groups.size());
    if (is_new) {
      blocks.groups.push_back(
          {.stack_id = object.stack_id, .share = {.tid = object.tid, .size = object.size, .age = age}});
    }
    const auto weight = static_cast<double>(object.weight);
    const auto size = static_cast<double>(object.size);
    blocks.groups[entry->second].share.live += {.samples = 1,
                                                .sampled_bytes = object.size,
                                                .objects = weight / size,
                                                .bytes = weight,
                                                .variance = weight * (weight - size)};
  });
  if (!status.ok()) return status;
  blocks.cost = base::Now() - begin;
  return blocks;
}

}  // namespace heaptap::recording
