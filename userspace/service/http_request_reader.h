// SPDX-License-Identifier: Apache-2.0
//
// One request after the other from a client that may send anything, at any speed.
//
// A request is read whole, within bounds of size and time, before anything is done about it. What is not plain HTTP/1
// is refused, so that what comes behind this reads no header at all: bodies have a Content-Length, and there are no
// transfer encodings, ranges, compressed bodies or continued header lines.
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
  bool waits_for_continue = false;  // before it sends the body
  std::string host = {};
  // A browser says that a page of some other site made it send this.
  bool is_cross_site = false;
};

// A request, or why there is none.
struct IncomingRequest {
  int refusal = 0;  // HTTP status to end the connection with; 0: it is a request
  RequestHead head = {};
  std::string body = {};
};

// Reads the header of a request, up to and with the empty line. Returns 0, or the HTTP status to refuse it with.
// Thread-safe.
int ParseHead(absl::string_view text, const HttpLimits& limits, RequestHead& head);

// Thread-compatible.
class HttpRequestReader {
 public:
  HttpRequestReader(HttpChannel& channel, const HttpLimits& limits) : channel_(channel), limits_(limits) {}

  // Nothing: the client has gone, or sent no byte within the time for that.
  std::optional<IncomingRequest> Next();

 private:
  bool ReadMore(absl::Time deadline);

  HttpChannel& channel_;
  const HttpLimits& limits_;
  std::string bytes_;  // read, and not yet used
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_HTTP_REQUEST_READER_H_
