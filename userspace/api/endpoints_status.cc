// SPDX-License-Identifier: Apache-2.0
//
// The collector as a whole: for Prometheus and for supervisors.
#include <vector>

#include "userspace/api/endpoint.h"
#include "userspace/json/prometheus.h"
#include "userspace/profile/figures.h"

namespace heaptap::api {
namespace {

Reply Metrics(Call& call) {
  if (absl::Status status = call.asker.Pay(); !status.ok()) return status;
  absl::StatusOr<profile::CollectorFigures> figures = call.collector.Figures(call.asker);
  if (!figures.ok()) return figures.status();
  std::erase_if(figures->processes,
                [&](const profile::ProcessSummary& process) { return !call.access.Sees(process.owner); });
  return http::Response{.content_type = json::kPrometheusContentType, .body = json::Prometheus(*figures)};
}

Reply Health(Call& call) {
  if (!call.collector.Health().ok()) return absl::UnavailableError("the collector does not answer");
  return http::Response{.content_type = http::kPlainText, .body = "ok\n"};
}

constexpr CollectorEndpoint kStatusEndpoints[] = {
    {"metrics", kRead, ErrorForm::kText, Metrics},
    {"healthz", kRead, ErrorForm::kText, Health},
};

}  // namespace

absl::Span<const CollectorEndpoint> StatusEndpoints() { return kStatusEndpoints; }

}  // namespace heaptap::api
