// SPDX-License-Identifier: Apache-2.0
#include "userspace/http/service.h"

#include <exception>
#include <string>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/messages.h"
#include "userspace/http/listener.h"
#include "userspace/http/wire.h"

namespace heaptap::http {

Response Service::AnswerTo(const Request& request, Channel& channel, const Access& access) const {
  const Sleep sleep = [&channel](absl::Duration duration) { return channel.Sleep(duration); };
  try {
    return handler_(request, access, sleep);
  } catch (const std::exception& error) {
    // Most likely out of memory; other clients are still served.
    base::Say(absl::StrCat("could not answer an HTTP client: ", error.what()));
    return {.status = 500, .content_type = kPlainText, .body = "internal error\n"};
  }
}

void Service::Serve(Channel& channel, const std::optional<Peer>& peer, std::optional<uid_t> user) const try {
  const Access access(peer, group_, user);
  RequestReader reader(channel, limits_);
  for (size_t left = limits_.requests_per_connection; left > 0; --left) {
    std::optional<IncomingRequest> incoming = reader.Next();
    if (!incoming.has_value()) return;
    const bool is_other_site = !peer.has_value() && (incoming->is_cross_site || !IsLoopbackHost(incoming->host));
    if (incoming->refusal == 0 && is_other_site) incoming->refusal = 403;
    if (incoming->refusal != 0) {
      channel.Write(Refusal(incoming->refusal), base::Now() + limits_.idle);
      return;
    }
    const Response response = AnswerTo(incoming->request, channel, access);
    const bool keep_alive = left > 1 && incoming->keep_alive;
    // The time starts now: the client is not responsible for the time to make the answer.
    const base::Instant deadline = base::Now() + limits_.answer_time;
    const bool is_written = channel.Write(ResponseHead(response, keep_alive), deadline) &&
                            (incoming->request.method == "HEAD" || channel.Write(response.body, deadline));
    if (!is_written || !keep_alive) return;
  }
} catch (const std::exception& error) {
  base::Say(absl::StrCat("could not serve an HTTP client: ", error.what()));
}

}  // namespace heaptap::http
