// SPDX-License-Identifier: Apache-2.0
//
// The pages by which libmtev serves the jemalloc of its own process, with byte-identical answers.
//
// Format: src/mtev_heap_profiler.c and src/mtev_stats.c of libmtev 2.7.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/api/endpoint.h"
#include "userspace/api/memory_json.h"
#include "userspace/formats/heap_v2.h"
#include "userspace/profile/figures.h"
#include "userspace/profile/snapshot.h"

namespace heaptap::api {
namespace {

// The process's allocator has no control block: it is not libheaptap.so, or too old.
http::Response NotLoaded() {
  return {.status = 500, .content_type = http::kPlainText, .body = "libjemalloc is not loaded, cannot heap profile\n"};
}

Reply SetActive(Call& call, const profile::NamedProcess& process, bool active) {
  const absl::Status set = call.collector.SetActive(process.ref(), active);
  if (absl::IsFailedPrecondition(set)) return NotLoaded();
  if (!set.ok()) return set;
  return http::Response{.content_type = http::kPlainText,
                        .body = active ? "Profiling is activated\n" : "Profiling is deactivated\n"};
}

Reply HeapProfile(Call& call, const profile::NamedProcess& process) {
  if (const std::optional<std::string> active = call.request.Parameter("active")) {
    if (call.access.IsLocalUser() || !call.request.is_of_browser) return SetActive(call, process, *active == "true");
    return http::Response{.status = 403,
                          .content_type = http::kPlainText,
                          .body = "a browser's GET changes nothing: use curl, or POST /pid/N/active?value=on\n"};
  }
  if (call.request.Parameter("trigger_dump") == "true") {
    const absl::StatusOr<profile::Snapshot> snapshot = call.collector.Snapshot(process.ref(), call.asker);
    if (!snapshot.ok()) return snapshot.status();
    return http::Response{.content_type = "application/x-jemalloc-heap-profile",
                          .body = formats::HeapV2(snapshot->profile)};
  }
  const absl::StatusOr<profile::AllocatorFigures> figures = call.collector.Allocator(process.ref());
  if (absl::IsFailedPrecondition(figures.status())) return NotLoaded();
  if (!figures.ok()) return figures.status();
  // A recorded process can be profiled whatever MALLOC_CONF says, and no thread is inactive by default.
  return http::Response{.content_type = http::kPlainText,
                        .body = absl::StrCat("opt.prof: true\nprof.active: ", figures->active ? "true" : "false",
                                             "\nprof.thread_active_init: true\n")};
}

Reply Memory(Call& call, const profile::NamedProcess& process) {
  const absl::StatusOr<profile::AllocatorFigures> figures = call.collector.Allocator(process.ref());
  if (absl::IsFailedPrecondition(figures.status())) return http::Response{.content_type = http::kJson, .body = "{}\n"};
  if (!figures.ok()) return figures.status();
  const absl::StatusOr<std::vector<profile::ProcessSummary>> all = call.collector.Processes(call.asker);
  if (!all.ok()) return all.status();
  const auto own = std::ranges::find(*all, process.ref(), &profile::ProcessSummary::ref);
  if (own == all->end()) return absl::NotFoundError(absl::StrCat("process ", process.pid, " is not recorded"));
  return http::Response{.content_type = http::kJson, .body = MemoryJson(*own, *figures)};
}

constexpr ProcessEndpoint kMtevEndpoints[] = {
    // No HEAD: a request can change the process.
    {"mtev/heap_profile", kGet, ErrorForm::kText, HeapProfile},
    {"mtev/memory.json", kRead, ErrorForm::kText, Memory},
};

}  // namespace

absl::Span<const ProcessEndpoint> MtevEndpoints() { return kMtevEndpoints; }

}  // namespace heaptap::api
