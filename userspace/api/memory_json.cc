// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/memory_json.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/json/json.h"
#include "userspace/profile/figures.h"

namespace heaptap::api {
namespace {

// The value of mallctl("version").
constexpr char kVersion[] = "5.3.1-0-g0000000000000000000000000000000000000000 heaptap";

// Saturates: the process may have written any number.
uint64_t Sum(uint64_t a, uint64_t b) {
  uint64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

}  // namespace

std::string MemoryJson(const profile::ProcessSummary& process, const profile::AllocatorFigures& figures) {
  json::Json stats = {{"allocated", profile::ToWhole(process.live_bytes)}};
  if (const std::optional<heaptap_statistics>& statistics = figures.statistics; statistics.has_value()) {
    stats.Set("active", statistics->active);
    stats.Set("resident", Sum(statistics->active, statistics->dirty));
    stats.Set("mapped", statistics->mapped);
  }
  const auto has = [&figures](uint32_t option) { return (figures.options & option) != 0; };
  const json::Json all = {
      {"jemalloc",
       {{"version", kVersion},
        {"config", {{"prof", true}, {"stats", true}}},
        {"opt",
         {{"prof", has(HEAPTAP_OPTION_PROF)},
          {"prof_active", has(HEAPTAP_OPTION_PROF_ACTIVE)},
          {"prof_final", has(HEAPTAP_OPTION_PROF_FINAL)},
          {"prof_leak", has(HEAPTAP_OPTION_PROF_LEAK)}}},
        {"prof", {{"thread_active_init", true}, {"active", figures.active}, {"lg_sample", figures.lg_sample}}},
        {"stats", std::move(stats)}}}};
  return absl::StrCat(all.Text(), "\n");
}

}  // namespace heaptap::api
