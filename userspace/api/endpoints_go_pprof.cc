// SPDX-License-Identifier: Apache-2.0
//
// The heap pages of Go's net/http/pprof, for `go tool pprof`, Parca, Grafana Alloy and Pyroscope.
//
// Format: pkg.go.dev/net/http/pprof. Profiles contain names, so clients need no symbols.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/api/endpoint.h"
#include "userspace/api/endpoints_symbol.h"
#include "userspace/formats/gperftools_heap.h"
#include "userspace/formats/pprof.h"
#include "userspace/profile/difference.h"
#include "userspace/profile/figures.h"
#include "userspace/profile/snapshot.h"

namespace heaptap::api {
namespace {

constexpr uint32_t kMaxSeconds = 3600;

http::Response Binary(profile::Snapshot snapshot, Call& call, absl::string_view name, formats::PprofOptions options) {
  options.time = snapshot.time;
  options.program = snapshot.executable;
  options.find_source_frames = call.symbols.FindAll(snapshot);
  // Threads may have any name, and scrapers keep a series for each label.
  options.threads = false;
  return {.content_type = "application/octet-stream",
          .body = formats::Pprof(snapshot.profile, options),
          .headers = {{"Content-Disposition", absl::StrCat("attachment; filename=\"", name, "\"")}}};
}

// For people and for tools that read gperftools' format.
http::Response Text(const profile::Snapshot& snapshot) { return {.body = formats::GperftoolsHeap(snapshot.profile)}; }

Reply Profile(Call& call, const profile::NamedProcess& process, absl::string_view name,
              absl::string_view default_sample_type) {
  const std::string debug = call.request.Parameter("debug").value_or("0");
  const std::optional<std::string> seconds_text = call.request.Parameter("seconds");
  const std::optional<uint32_t> seconds = ParseNumber(seconds_text.value_or("1"), 1, kMaxSeconds);
  if (!seconds.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("seconds must be a number from 1 to ", kMaxSeconds));
  }
  if (seconds_text.has_value() && debug != "0") {
    return absl::InvalidArgumentError("seconds and debug cannot be combined");
  }
  absl::StatusOr<profile::Snapshot> snapshot = call.collector.Snapshot(process.ref(), call.asker);
  if (!snapshot.ok()) return snapshot.status();
  if (debug != "0") return Text(*snapshot);

  formats::PprofOptions options = {.default_sample_type = std::string(default_sample_type)};
  if (seconds_text.has_value()) {
    const absl::StatusOr<profile::Snapshot> before = std::move(snapshot);
    if (!call.sleep(absl::Seconds(*seconds)))
      return absl::UnavailableError("the client disconnected, or the collector is shutting down");
    snapshot = call.collector.Snapshot(process.ref(), call.asker);
    if (absl::IsNotFound(snapshot.status())) {
      return absl::NotFoundError(absl::StrCat("process ", process.pid, " ended in the meantime"));
    }
    if (!snapshot.ok()) return snapshot.status();
    snapshot->profile = profile::Difference(snapshot->profile, before->profile);
    options.duration = snapshot->time - before->time;
  }
  return Binary(std::move(*snapshot), call, name, options);
}

Reply Heap(Call& call, const profile::NamedProcess& process) { return Profile(call, process, "heap", "inuse_space"); }

Reply Allocs(Call& call, const profile::NamedProcess& process) {
  return Profile(call, process, "allocs", "alloc_space");
}

// This protocol has one name for an address: the function into which the others were inlined.
std::string Outermost(const std::vector<std::string>& names) { return names.back(); }

Reply Symbol(Call& call, const profile::NamedProcess& process) { return AnswerSymbols(call, process, Outermost); }

constexpr ProcessEndpoint kGoPprofEndpoints[] = {
    {"debug/pprof/heap", kRead, ErrorForm::kGo, Heap},
    {"debug/pprof/allocs", kRead, ErrorForm::kGo, Allocs},
    {"debug/pprof/symbol", kRead | kPost, ErrorForm::kGo, Symbol},
    {"debug/pprof/cmdline", kRead, ErrorForm::kGo, AnswerCommandLine},
};

}  // namespace

absl::Span<const ProcessEndpoint> GoPprofEndpoints() { return kGoPprofEndpoints; }

}  // namespace heaptap::api
