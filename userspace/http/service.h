// SPDX-License-Identifier: Apache-2.0
//
// Answers the requests of one connection at a time: reads a request, calls the handler, writes its answer.
#ifndef HEAPTAP_USERSPACE_HTTP_SERVICE_H_
#define HEAPTAP_USERSPACE_HTTP_SERVICE_H_

#include <sys/types.h>

#include <optional>
#include <utility>

#include "userspace/http/access.h"
#include "userspace/http/channel.h"
#include "userspace/http/limits.h"
#include "userspace/http/message.h"

namespace heaptap::http {

// Thread-safe.
class Service {
 public:
  // `group`: members have all rights (Access).
  Service(Handler handler, const Limits& limits, std::optional<gid_t> group)
      : handler_(std::move(handler)), limits_(limits), group_(group) {}

  // Answers requests until the client disconnects or reaches a limit. `peer`: none for a client over TCP. Such a client
  // may be a browser, so requests of other sites' pages are refused. `user`: the user of a client over TCP, if known.
  // Throws nothing.
  void Serve(Channel& channel, const std::optional<Peer>& peer, std::optional<uid_t> user = std::nullopt) const;

 private:
  Response AnswerTo(const Request& request, Channel& channel, const Access& access) const;

  const Handler handler_;
  const Limits limits_;
  const std::optional<gid_t> group_;
};

}  // namespace heaptap::http

#endif  // HEAPTAP_USERSPACE_HTTP_SERVICE_H_
