// SPDX-License-Identifier: Apache-2.0
//
// The page for people with a browser (userspace/web/), and the profiles that it reads.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/api/endpoint.h"
#include "userspace/base/printable_text.h"
#include "userspace/profile/snapshot.h"
#include "userspace/report/named_profile.h"
#include "userspace/report/summary_text.h"
#include "userspace/views/page_data.h"
#include "userspace/web/assets.h"

namespace heaptap::api {
namespace {

// Only the page's own script runs, whatever a process or a function is called.
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";

http::Response Asset(const char* type, std::string body) {
  return {.content_type = type, .body = std::move(body), .headers = {{"Content-Security-Policy", kPolicy}}};
}

Reply Page(Call& call) {
  // A client that may see no process gets the page, which then shows none.
  (void)call;
  return Asset("text/html; charset=utf-8", web::ServedPage());
}

Reply Script(Call& call) {
  (void)call;
  return Asset("text/javascript; charset=utf-8", std::string(web::Script()));
}

Reply Style(Call& call) {
  (void)call;
  return Asset("text/css; charset=utf-8", std::string(web::Style()));
}

Reply Profile(Call& call, const profile::NamedProcess& process) {
  absl::StatusOr<profile::Snapshot> snapshot = call.collector.DetailedSnapshot(process.ref(), call.asker);
  if (!snapshot.ok()) return snapshot.status();
  const profile::FindSourceFrames find = call.symbols.FindAll(*snapshot);
  const report::NamedProfile named(snapshot->profile, find, {}, report::Roots::kNone, report::CutPaths::kMarked);
  report::Subject subject = {.name = absl::StrCat(base::Printable(process.command), " (PID ", process.pid, ")"),
                             .period = snapshot->profile.period,
                             .several_periods = snapshot->profile.several_periods};
  subject.coverage = snapshot->coverage;
  if (!subject.coverage.empty()) subject.resident_bytes = profile::SumOf(subject.coverage);
  subject.warnings.reserve(snapshot->profile.warnings.size());
  for (const std::string& warning : snapshot->profile.warnings) subject.warnings.push_back(base::Printable(warning));
  return http::Response{
      .content_type = http::kJson,
      .body = report::PageData(named, named.paths(), subject,
                               {.pid = process.pid, .time = snapshot->time, .shares = &snapshot->profile})};
}

constexpr CollectorEndpoint kPages[] = {
    {"", kRead, ErrorForm::kText, Page},
    {"page.js", kRead, ErrorForm::kText, Script},
    {"page.css", kRead, ErrorForm::kText, Style},
};

constexpr ProcessEndpoint kProfiles[] = {
    {"profile.json", kRead, ErrorForm::kText, Profile, /*needs_prefix=*/true},
};

}  // namespace

absl::Span<const CollectorEndpoint> PageEndpoints() { return kPages; }
absl::Span<const ProcessEndpoint> PageProcessEndpoints() { return kProfiles; }

}  // namespace heaptap::api
