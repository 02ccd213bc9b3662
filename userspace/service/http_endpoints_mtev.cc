// SPDX-License-Identifier: Apache-2.0
//
// The pages by which libmtev serves the jemalloc of its own process, with byte-identical answers.
//
// Format: src/mtev_heap_profiler.c and src/mtev_stats.c of libmtev 2.7.
#include "absl/strings/str_cat.h"
#include "userspace/export/heap_v2.h"
#include "userspace/service/http_endpoint.h"
#include "userspace/service/memory_json.h"

namespace heaptap::service {
namespace {

// The process's allocator has no control block: it is not libheaptap.so, or too old.
HttpAnswer NotLoaded() {
  return {.status = 500, .content_type = kPlainText, .body = "libjemalloc is not loaded, cannot heap profile\n"};
}

HttpReply SetActive(HttpCall& call, const ProcessSummary& process, bool active) {
  const absl::Status set = call.collector.SetActive(process.pid, active);
  if (absl::IsFailedPrecondition(set)) return NotLoaded();
  if (!set.ok()) return set;
  return HttpAnswer{.content_type = kPlainText,
                    .body = active ? "Profiling is activated\n" : "Profiling is deactivated\n"};
}

HttpReply HeapProfile(HttpCall& call, const ProcessSummary& process) {
  if (const std::optional<std::string> active = call.request.Parameter("active")) {
    return SetActive(call, process, *active == "true");
  }
  if (call.request.Parameter("trigger_dump") == "true") {
    const absl::StatusOr<ProfileSnapshot> snapshot = SnapshotOf(call, process);
    if (!snapshot.ok()) return snapshot.status();
    return HttpAnswer{.content_type = "application/x-jemalloc-heap-profile",
                      .body = exporter::HeapV2(snapshot->profile)};
  }
  const absl::StatusOr<AllocatorFigures> figures = AllocatorOf(call, process);
  if (absl::IsFailedPrecondition(figures.status())) return NotLoaded();
  if (!figures.ok()) return figures.status();
  // A recorded process can be profiled whatever MALLOC_CONF says, and no thread is inactive by default.
  return HttpAnswer{.content_type = kPlainText,
                    .body = absl::StrCat("opt.prof: true\nprof.active: ", figures->active ? "true" : "false",
                                         "\nprof.thread_active_init: true\n")};
}

HttpReply Memory(HttpCall& call, const ProcessSummary& process) {
  const absl::StatusOr<AllocatorFigures> figures = AllocatorOf(call, process);
  if (absl::IsFailedPrecondition(figures.status())) return HttpAnswer{.content_type = kJson, .body = "{}\n"};
  if (!figures.ok()) return figures.status();
  return HttpAnswer{.content_type = kJson, .body = MemoryJson(process, *figures)};
}

constexpr ProcessEndpoint kEndpoints[] = {
    // No HEAD: a request can change the process.
    {"mtev/heap_profile", kGet, ErrorForm::kText, HeapProfile},
    {"mtev/memory.json", kRead, ErrorForm::kText, Memory},
};

}  // namespace

absl::Span<const ProcessEndpoint> MtevEndpoints() { return kEndpoints; }

}  // namespace heaptap::service
