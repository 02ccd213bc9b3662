// SPDX-License-Identifier: Apache-2.0
#include "userspace/http/url.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "userspace/base/printable_text.h"

namespace heaptap::http {
namespace {

constexpr absl::string_view kAfterScheme = "://";
constexpr char kDefaultPort[] = "80";
// Servers accept about 8000 bytes (RFC 9112, 3).
constexpr size_t kMaxUrlBytes = 8000;
constexpr uint32_t kMaxPort = 65535;

absl::Status Wrong(absl::string_view word, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(base::Printable(word), ": ", why));
}

// Splits "HOST[:PORT]". False: it has another form.
bool SplitAuthority(absl::string_view authority, Url& url) {
  absl::string_view port;
  if (absl::ConsumePrefix(&authority, "[")) {
    const size_t end = authority.find(']');
    if (end == absl::string_view::npos) return false;
    port = authority.substr(end + 1);
    url.host = std::string(authority.substr(0, end));
  } else {
    const size_t end = std::min(authority.find(':'), authority.size());
    port = authority.substr(end);
    url.host = std::string(authority.substr(0, end));
  }
  url.port = kDefaultPort;
  if (absl::ConsumePrefix(&port, ":")) url.port = std::string(port);
  uint32_t number = 0;
  return (port.empty() || port == url.port) && !url.host.empty() &&
         std::all_of(url.port.begin(), url.port.end(), absl::ascii_isdigit) && absl::SimpleAtoi(url.port, &number) &&
         number > 0 && number <= kMaxPort;
}

}  // namespace

bool IsUrl(absl::string_view word) { return absl::StrContains(word, kAfterScheme); }

absl::StatusOr<Url> ParseUrl(absl::string_view word) {
  if (word.size() > kMaxUrlBytes) {
    return Wrong(absl::StrCat(word.substr(0, 40), "..."), absl::StrCat("longer than ", kMaxUrlBytes, " bytes"));
  }
  const size_t scheme_end = std::min(word.find(kAfterScheme), word.size());
  const std::string scheme = absl::AsciiStrToLower(word.substr(0, scheme_end));
  absl::string_view rest = absl::StripPrefix(word.substr(scheme_end), kAfterScheme);
  const absl::string_view authority = rest.substr(0, rest.find_first_of("/?#"));
  if (absl::StrContains(authority, '@')) {
    return absl::InvalidArgumentError(
        "a URL with a user name: passwords in URLs are not supported; fetch the profile first (curl -u USER -o FILE "
        "URL), then name the file");
  }
  if (scheme == "https") {
    return Wrong(word, "https is not supported; fetch it first (curl -o FILE URL), then name the file");
  }
  if (scheme != "http") return Wrong(word, "expected a URL that begins with http://");
  if (!std::all_of(word.begin(), word.end(), absl::ascii_isgraph)) {
    return Wrong(word, "a space, a control character or a letter outside ASCII in a URL; write it as %XX");
  }
  Url url = {.authority = std::string(authority)};
  if (!SplitAuthority(authority, url)) return Wrong(word, "expected http://HOST:PORT/...");
  rest.remove_prefix(authority.size());
  url.target = std::string(rest.substr(0, rest.find('#')));
  if (!absl::StartsWith(url.target, "/")) url.target.insert(0, "/");
  return url;
}

}  // namespace heaptap::http
