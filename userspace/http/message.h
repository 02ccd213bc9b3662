// SPDX-License-Identifier: Apache-2.0
//
// A request of an HTTP client, the response to it, and the function that makes one from the other.
#ifndef HEAPTAP_USERSPACE_HTTP_MESSAGE_H_
#define HEAPTAP_USERSPACE_HTTP_MESSAGE_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "userspace/http/access.h"

namespace heaptap::http {

// Chosen by the client: may hold any byte.
struct Request {
  std::string method = {};
  std::string path = {};                                    // decoded
  std::multimap<std::string, std::string> parameters = {};  // of the query, decoded
  std::string body = {};
  // The request has a header that browsers send and programs such as curl do not. Any web page can make a browser send
  // a GET, and not all browsers say which page did.
  bool is_of_browser = false;

  // The first value of a parameter; none if it is absent.
  std::optional<std::string> Parameter(const std::string& name) const {
    auto found = parameters.find(name);
    return found == parameters.end() ? std::nullopt : std::optional<std::string>(found->second);
  }
};

inline constexpr char kPlainText[] = "text/plain";
inline constexpr char kUtf8Text[] = "text/plain; charset=utf-8";
inline constexpr char kJson[] = "application/json";

struct Response {
  int status = 200;
  std::string content_type = kUtf8Text;
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};  // in addition to the headers of all answers
  std::shared_ptr<void> room = {};                                // that the answer takes (AnswerRoom); may be null
};

// Waits. Returns false as soon as the client disconnects.
using Sleep = std::function<bool(absl::Duration)>;

// Answers a request of a client with these rights. Called by several threads at once.
using Handler = std::function<Response(const Request&, const Access&, const Sleep&)>;

}  // namespace heaptap::http

#endif  // HEAPTAP_USERSPACE_HTTP_MESSAGE_H_
