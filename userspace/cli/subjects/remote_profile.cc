// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/subjects/remote_profile.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "userspace/base/messages.h"
#include "userspace/base/printable_text.h"
#include "userspace/http/client.h"
#include "userspace/http/url.h"

namespace heaptap::cli {
namespace {

// At most this much of the reason that a server gives is shown.
constexpr size_t kMaxReasonBytes = 200;
constexpr size_t kMaxFileNameBytes = 100;

// The first line of an error page, if the page is for people, not HTML or JSON.
std::string ReasonIn(absl::string_view body) {
  const absl::string_view line = body.substr(0, body.find_first_of("\r\n")).substr(0, kMaxReasonBytes);
  if (line.empty() || absl::StartsWith(line, "<") || absl::StartsWith(line, "{")) return "";
  return absl::StrCat(": ", base::AsciiOnly(line));
}

absl::Status Refusal(const http::Answer& answer, const std::string& shown) {
  const std::string said = absl::StrCat(shown, ": the server answers ", answer.status, " (",
                                        http::Reason(answer.status), ")", ReasonIn(answer.body));
  switch (answer.status) {
    case 401:
    case 403:
      return absl::PermissionDeniedError(said);
    case 404:
      return absl::NotFoundError(said);
    default:
      break;
  }
  if (answer.status >= 300 && answer.status < 400 && !answer.location.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(shown, ": the server sends you to ",
                                                      base::AsciiOnly(answer.location).substr(0, kMaxReasonBytes),
                                                      "; if you trust that place, name it instead"));
  }
  return absl::FailedPreconditionError(said);
}

}  // namespace

absl::StatusOr<std::string> FetchRemote(const std::string& url, const RemoteLimits& limits) {
  const absl::StatusOr<http::Url> parsed = http::ParseUrl(url);
  if (!parsed.ok()) return parsed.status();
  const std::string shown = base::Printable(url);
  const auto failed = [&](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(shown, ": ", status.message()));
  };
  const absl::StatusOr<base::FileDescriptor> connection = http::Connect(*parsed, limits.connect);
  if (!connection.ok()) return failed(connection.status());
  absl::StatusOr<http::Answer> answer = http::Get(*connection, *parsed, limits.bytes, limits.silence);
  if (!answer.ok()) return failed(answer.status());
  if (answer->status != 200) return Refusal(*answer, shown);
  if (answer->body.empty()) return failed(absl::DataLossError("the answer is empty"));
  return std::move(answer->body);
}

std::string FileNameOfUrl(absl::string_view url) {
  url.remove_prefix(url.find("://") + 3);
  std::string name(absl::StripSuffix(url.substr(0, url.find_first_of("?#")), "/").substr(0, kMaxFileNameBytes));
  for (char& letter : name) {
    if (!absl::ascii_isalnum(letter) && letter != '-' && letter != '.') letter = '_';
  }
  return name;
}

}  // namespace heaptap::cli
