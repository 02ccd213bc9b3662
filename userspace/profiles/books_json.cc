// SPDX-License-Identifier: Apache-2.0
#include "userspace/profiles/books_json.h"

#include <cstdint>

#include "userspace/json/json.h"
#include "userspace/profile/estimate.h"

namespace heaptap::recording {
namespace {

using json::Json;

void Add(const heaptap_count& count, heaptap_count& sum) {
  sum.objects += count.objects;
  sum.bytes += count.bytes;
  sum.weight += count.weight;
  sum.weighted_objects += count.weighted_objects;
  sum.variance += count.variance;
}

}  // namespace

BooksLine BooksJson(pid_t pid, absl::string_view name, const std::vector<bpf::TallyEntry>& tallies,
                    const bpf::LiveTotals& live, const bpf::Losses& lost) {
  heaptap_tally sum = {};
  for (const bpf::TallyEntry& entry : tallies) {
    Add(entry.tally.allocated, sum.allocated);
    Add(entry.tally.freed, sum.freed);
  }
  const profile::Estimate allocated = profile::ToEstimate(sum.allocated);
  const uint64_t objects = sum.allocated.objects - sum.freed.objects;
  const uint64_t bytes = sum.allocated.bytes - sum.freed.bytes;
  const uint64_t weight = sum.allocated.weight - sum.freed.weight;
  const bool balanced = objects == live.objects && bytes == live.bytes && weight == live.weight;
  Json losses;
  for (uint32_t reason = HEAPTAP_NO_LOSS + 1; reason < lost.size(); reason++) {
    losses.Set(bpf::LossName(reason), lost[reason].events);
  }
  const Json books = {{"pid", pid},
                      {"name", name},
                      {"samples_allocated", sum.allocated.objects},
                      {"samples_freed", sum.freed.objects},
                      {"tally_live_objects", objects},
                      {"tally_live_bytes", bytes},
                      {"tally_live_weight", weight},
                      {"live_entries", live.objects},
                      {"live_bytes", live.bytes},
                      {"live_weight", live.weight},
                      {"allocated_objects", allocated.objects},
                      {"allocated_bytes", allocated.bytes},
                      {"balanced", balanced},
                      {"losses", losses}};
  return {.text = Json{{"books", books}}.Text(), .balanced = balanced};
}

}  // namespace heaptap::recording
