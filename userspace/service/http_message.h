// SPDX-License-Identifier: Apache-2.0
//
// A request of an HTTP client and the answer to it, as the endpoints see them.
#ifndef HEAPTAP_USERSPACE_SERVICE_HTTP_MESSAGE_H_
#define HEAPTAP_USERSPACE_SERVICE_HTTP_MESSAGE_H_

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heaptap::service {

// Chosen by the client: may hold any byte.
struct HttpRequest {
  std::string method = {};
  std::string path = {};                                    // decoded
  std::multimap<std::string, std::string> parameters = {};  // of the query, decoded
  std::string body = {};

  // The first value of a parameter; none if it is absent.
  std::optional<std::string> Parameter(const std::string& name) const {
    auto found = parameters.find(name);
    return found == parameters.end() ? std::nullopt : std::optional<std::string>(found->second);
  }
};

inline constexpr char kPlainText[] = "text/plain";
inline constexpr char kUtf8Text[] = "text/plain; charset=utf-8";
inline constexpr char kJson[] = "application/json";

struct HttpAnswer {
  int status = 200;
  std::string content_type = kUtf8Text;
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};  // in addition to those of all answers
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_HTTP_MESSAGE_H_
