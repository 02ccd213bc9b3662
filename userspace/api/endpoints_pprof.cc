// SPDX-License-Identifier: Apache-2.0
//
// gperftools' protocol for remote programs, as spoken by jeprof and google-pprof: the profile has addresses, and the
// client asks for their names.
//
// Format: bin/jeprof of jemalloc 5.3 (FetchDynamicProfiles, FetchSymbols), Go's internal/symbolz.
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "userspace/api/endpoint.h"
#include "userspace/api/endpoints_symbol.h"
#include "userspace/formats/growth_heap.h"
#include "userspace/formats/heap_v2.h"
#include "userspace/profile/figures.h"
#include "userspace/profile/snapshot.h"

namespace heaptap::api {
namespace {

Reply PprofHeap(Call& call, const profile::NamedProcess& process) {
  const absl::StatusOr<profile::Snapshot> snapshot = call.collector.Snapshot(process.ref(), call.asker);
  if (!snapshot.ok()) return snapshot.status();
  return http::Response{.content_type = http::kPlainText, .body = formats::HeapV2(snapshot->profile)};
}

Reply Growth(Call& call, const profile::NamedProcess& process) {
  const absl::StatusOr<profile::Snapshot> snapshot = call.collector.Snapshot(process.ref(), call.asker);
  if (!snapshot.ok()) return snapshot.status();
  return http::Response{.content_type = http::kPlainText, .body = formats::GrowthHeap(snapshot->profile)};
}

// The outermost function first, then the functions that were inlined into it.
std::string WithInlined(const std::vector<std::string>& names) {
  return absl::StrJoin(names.rbegin(), names.rend(), "--");
}

Reply PprofSymbol(Call& call, const profile::NamedProcess& process) {
  return AnswerSymbols(call, process, WithInlined);
}

constexpr ProcessEndpoint kPprofEndpoints[] = {
    {"pprof/heap", kRead, ErrorForm::kText, PprofHeap},
    {"pprof/growth", kRead, ErrorForm::kText, Growth},
    {"pprof/symbol", kRead | kPost, ErrorForm::kText, PprofSymbol},
    {"pprof/cmdline", kRead, ErrorForm::kText, AnswerCommandLine},
};

}  // namespace

absl::Span<const ProcessEndpoint> PprofEndpoints() { return kPprofEndpoints; }

}  // namespace heaptap::api
