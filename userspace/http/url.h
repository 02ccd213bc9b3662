// SPDX-License-Identifier: Apache-2.0
//
// The address of a document on a web server (RFC 3986), without encryption. Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_HTTP_URL_H_
#define HEAPTAP_USERSPACE_HTTP_URL_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace heaptap::http {

struct Url {
  std::string host = {};       // a name or an address, IPv6 without its brackets
  std::string port = {};       // 1 to 65535
  std::string target = {};     // of a request: the path and the query
  std::string authority = {};  // of the header Host: host and port as they were written

  friend bool operator==(const Url&, const Url&) = default;
};

// Whether the word is meant as a URL of any kind.
bool IsUrl(absl::string_view word);

// InvalidArgument: not http://HOST[:PORT][/PATH][?QUERY], or it has a byte that must be escaped, or a user name. The
// message begins with the word, unless the word may hold a password, and says what to do. Leaves out the fragment.
absl::StatusOr<Url> ParseUrl(absl::string_view word);

}  // namespace heaptap::http

#endif  // HEAPTAP_USERSPACE_HTTP_URL_H_
