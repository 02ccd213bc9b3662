// SPDX-License-Identifier: Apache-2.0
//
// HTTP for a collector, one connection at a time: what the client sends is read whole and vetted
// (http_request_reader.h), parsed and answered by cpp-httplib, with the endpoints in between.
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
  // Refers to `collector`. `group`: whose members may see all (Access).
  HttpService(Collector& collector, const HttpLimits& limits, std::optional<gid_t> group);
  ~HttpService();

  // Answers what comes through `channel` until the client has gone or has used up what it may. `peer`: nobody if it
  // came by TCP; then it may be a browser, and pages of other sites are refused. No exception comes out.
  void Serve(HttpChannel& channel, const std::optional<Peer>& peer);

  // A whole answer for a connection that is not served.
  static std::string Refusal(int status);

 private:
  class Library;
  std::unique_ptr<Library> library_;
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_HTTP_SERVICE_H_
