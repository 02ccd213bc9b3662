// SPDX-License-Identifier: Apache-2.0
//
// gperftools' protocol for remote programs, as spoken by jeprof and google-pprof: the profile has addresses, and the
// client asks for their names.
//
// Format: bin/jeprof of jemalloc 5.3 (FetchDynamicProfiles, FetchSymbols), Go's internal/symbolz.
#include "absl/strings/str_join.h"
#include "userspace/export/growth_heap.h"
#include "userspace/export/heap_v2.h"
#include "userspace/service/http_endpoint.h"
#include "userspace/service/http_endpoints_symbol.h"

namespace heaptap::service {
namespace {

HttpReply Heap(HttpCall& call, const ProcessSummary& process) {
  const absl::StatusOr<ProfileSnapshot> snapshot = SnapshotOf(call, process);
  if (!snapshot.ok()) return snapshot.status();
  return HttpAnswer{.content_type = kPlainText, .body = exporter::HeapV2(snapshot->profile)};
}

HttpReply Growth(HttpCall& call, const ProcessSummary& process) {
  const absl::StatusOr<ProfileSnapshot> snapshot = SnapshotOf(call, process);
  if (!snapshot.ok()) return snapshot.status();
  return HttpAnswer{.content_type = kPlainText, .body = exporter::GrowthHeap(snapshot->profile)};
}

// The outermost function first, then the functions that were inlined into it.
std::string WithInlined(const std::vector<std::string>& names) {
  return absl::StrJoin(names.rbegin(), names.rend(), "--");
}

HttpReply Symbol(HttpCall& call, const ProcessSummary& process) { return AnswerSymbols(call, process, WithInlined); }

constexpr ProcessEndpoint kEndpoints[] = {
    {"pprof/heap", kRead, ErrorForm::kText, Heap},
    {"pprof/growth", kRead, ErrorForm::kText, Growth},
    {"pprof/symbol", kRead | kPost, ErrorForm::kText, Symbol},
    {"pprof/cmdline", kRead, ErrorForm::kText, AnswerCommandLine},
};

}  // namespace

absl::Span<const ProcessEndpoint> PprofEndpoints() { return kEndpoints; }

}  // namespace heaptap::service
