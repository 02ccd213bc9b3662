// SPDX-License-Identifier: Apache-2.0
//
// Reads requests from a client that may send anything, at any speed.
//
// A request is read completely, within limits of size and time, before it is processed. Only plain HTTP/1 is accepted,
// so that the code behind this reader sees no headers: a body needs a Content-Length, and transfer encodings, ranges,
// compressed bodies and continued header lines are refused.
//
// Format: RFC 9112.
#ifndef HEAPTAP_USERSPACE_SERVICE_HTTP_REQUEST_READER_H_
#define HEAPTAP_USERSPACE_SERVICE_HTTP_REQUEST_READER_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "userspace/service/http_channel.h"
#include "userspace/service/http_limits.h"

namespace heaptap::service {

struct RequestHead {
  std::string line = {};  // method, target and version
  bool keep_alive = false;
  size_t body_bytes = 0;
  bool waits_for_continue = false;  // the client sends the body after "100 Continue"
  std::string host = {};
  // According to the browser, a page of another site sent this request.
  bool is_cross_site = false;
};

// A request, or the reason for a refusal.
struct IncomingRequest {
  int refusal = 0;  // HTTP status to end the connection with; 0: a valid request
  RequestHead head = {};
  std::string body = {};
};

// Parses the header of a request, including the empty line. Returns 0, or the HTTP status to refuse it with.
// Thread-safe.
int ParseHead(absl::string_view text, const HttpLimits& limits, RequestHead& head);

// Thread-compatible.
class HttpRequestReader {
 public:
  HttpRequestReader(HttpChannel& channel, const HttpLimits& limits) : channel_(channel), limits_(limits) {}

  // None: the client has disconnected, or sent nothing within the idle time.
  std::optional<IncomingRequest> Next();

 private:
  bool ReadMore(absl::Time deadline);

  HttpChannel& channel_;
  const HttpLimits& limits_;
  std::string bytes_;  // read but not yet consumed
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_HTTP_REQUEST_READER_H_
