// SPDX-License-Identifier: Apache-2.0
//
// Serves HTTP for a collector, one connection at a time: http_request_reader.h reads and checks a request, cpp-httplib
// parses it and writes the answer, and the endpoints in between make the answer.
#ifndef HEAPTAP_USERSPACE_SERVICE_HTTP_SERVICE_H_
#define HEAPTAP_USERSPACE_SERVICE_HTTP_SERVICE_H_

#include <sys/types.h>

#include <memory>
#include <optional>

#include "absl/strings/string_view.h"
#include "userspace/service/collector.h"
#include "userspace/service/http_access.h"
#include "userspace/service/http_channel.h"
#include "userspace/service/http_limits.h"

namespace heaptap::service {

// Thread-safe.
class HttpService {
 public:
  // Refers to `collector`. `group`: members have all rights (Access).
  HttpService(Collector& collector, const HttpLimits& limits, std::optional<gid_t> group);
  ~HttpService();

  // Answers requests until the client disconnects or reaches a limit. `peer`: none for a client over TCP. Such a client
  // may be a browser, so requests of other sites' pages are refused. Throws nothing.
  void Serve(HttpChannel& channel, const std::optional<Peer>& peer);

  // The complete answer for a refused connection or request.
  static std::string Refusal(int status);

 private:
  class Library;
  std::unique_ptr<Library> library_;
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_HTTP_SERVICE_H_
