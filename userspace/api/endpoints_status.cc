// SPDX-License-Identifier: Apache-2.0
//
// The collector as a whole: for Prometheus, for supervisors, and for people with a browser.
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "userspace/api/endpoint.h"
#include "userspace/base/printable_text.h"
#include "userspace/export/prometheus.h"
#include "userspace/profile/estimate.h"
#include "userspace/profile/figures.h"

namespace heaptap::api {
namespace {

Reply Metrics(Call& call) {
  absl::StatusOr<profile::CollectorFigures> figures = call.collector.Figures();
  if (!figures.ok()) return figures.status();
  std::erase_if(figures->processes,
                [&](const profile::ProcessSummary& process) { return !call.access.Sees(process.owner); });
  return http::Response{.content_type = exporter::kPrometheusContentType, .body = exporter::Prometheus(*figures)};
}

Reply Health(Call& call) {
  const absl::StatusOr<std::vector<profile::ProcessSummary>> processes = call.collector.Processes();
  if (!processes.ok()) return absl::UnavailableError("the collector does not answer");
  return http::Response{.content_type = http::kPlainText, .body = "ok\n"};
}

std::string Html(absl::string_view text) {
  return absl::StrReplaceAll(base::Printable(text),
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

void AppendRow(const profile::ProcessSummary& process, std::string& out) {
  absl::StrAppend(&out, "<tr><td>", process.pid, "</td><td>", Html(process.command), "</td><td>",
                  profile::ToWhole(process.live_bytes), "</td><td>", profile::ToWhole(process.peak_bytes), "</td><td>",
                  profile::ToWhole(process.allocated_bytes), "</td><td>");
  constexpr absl::string_view kLinks[][2] = {
      {"heap", "heap_v2"},
      {"debug/pprof/heap", "pprof"},
      {"collapsed", "collapsed"},
      {"jeprof", "jeprof with names"},
      {"mtev/memory.json", "allocator"},
  };
  for (const auto& [path, name] : kLinks) {
    absl::StrAppend(&out, "<a href=\"/pid/", process.pid, "/", path, "\">", name, "</a> ");
  }
  out.append("</td></tr>\n");
}

Reply Index(Call& call) {
  const absl::StatusOr<std::vector<profile::ProcessSummary>> processes = VisibleProcesses(call);
  if (!processes.ok()) return processes.status();
  http::Response answer = {.content_type = "text/html; charset=utf-8",
                           // No script may run on the page, whatever a process is called.
                           .headers = {{"Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"}}};
  answer.body =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>heaptap</title>\n"
      "<style>body{font-family:sans-serif}td,th{padding:0 .6em;text-align:left}</style></head>\n"
      "<body>\n<h1>heaptap</h1>\n<p><a href=\"/metrics\">metrics</a> <a href=\"/processes.json\">processes</a> "
      "<a href=\"/ended.json\">ended processes</a></p>\n"
      "<table>\n<tr><th>PID</th><th>command</th><th>live bytes</th><th>peak</th><th>allocated</th><th>profiles</th>"
      "</tr>\n";
  for (const profile::ProcessSummary& process : *processes) AppendRow(process, answer.body);
  answer.body.append("</table>\n</body>\n</html>\n");
  return answer;
}

constexpr CollectorEndpoint kEndpoints[] = {
    {"", kRead, ErrorForm::kText, Index},
    {"metrics", kRead, ErrorForm::kText, Metrics},
    {"healthz", kRead, ErrorForm::kText, Health},
};

}  // namespace

absl::Span<const CollectorEndpoint> StatusEndpoints() { return kEndpoints; }

}  // namespace heaptap::api
