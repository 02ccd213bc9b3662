// SPDX-License-Identifier: Apache-2.0
//
// HTTP/1.1 messages as bytes (RFC 9112): reads requests and answers from peers that may send anything, at any speed,
// and writes answers. A message is read completely, within limits of size and time, before it is processed.
#ifndef HEAPTAP_USERSPACE_HTTP_WIRE_H_
#define HEAPTAP_USERSPACE_HTTP_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "userspace/base/clock.h"
#include "userspace/http/channel.h"
#include "userspace/http/limits.h"
#include "userspace/http/message.h"

namespace heaptap::http {

// Splits a request's target (RFC 3986, 3) into path and parameters, and decodes both. Invalid escapes stay as they are.
// False: the target does not start with / or has two question marks. Thread-safe.
bool ParseTarget(absl::string_view target, Request& request);

// A request, or the reason for a refusal.
struct IncomingRequest {
  int refusal = 0;  // HTTP status to end the connection with; 0: a valid request
  Request request = {};
  bool keep_alive = false;
  std::string host = {};
  // According to the browser, a page of another site sent this request.
  bool is_cross_site = false;
};

// Reads requests. A body needs a Content-Length; transfer encodings, compressed bodies and continued header lines are
// refused, ranges are ignored. Thread-compatible.
class RequestReader {
 public:
  RequestReader(Channel& channel, const Limits& limits) : channel_(channel), limits_(limits) {}

  // None: the client has disconnected, or sent nothing within the idle time.
  std::optional<IncomingRequest> Next();

 private:
  // False: Channel::Read returned 0.
  bool ReadMore(base::Instant deadline);

  Channel& channel_;
  const Limits& limits_;
  std::string bytes_;  // read but not yet consumed
};

// The head of an answer: the status, the headers of all answers, the headers of this answer, and the empty line.
std::string ResponseHead(const Response& response, bool keep_alive);

// The complete answer for a refused connection or request.
std::string Refusal(int status);

inline constexpr size_t kMaxAnswerHeadBytes = 16 << 10;

// The answer that a client gets.
struct Answer {
  int status = 0;             // 100 to 599
  std::string location = {};  // where a redirection leads to; any bytes
  // Retry-After, if it is a number of seconds.
  std::optional<uint32_t> seconds_to_wait = {};
  std::string body = {};
};

// How long an answer may take.
struct Patience {
  base::Instant deadline = base::Instant::InfiniteFuture();
  absl::Duration silence = absl::InfiniteDuration();  // from a byte to the next
};

// Reads the answer to the only request on a connection. The answer ends at its stated length or with the connection.
// DataLoss: not HTTP, or incomplete. ResourceExhausted: the body is too long. DeadlineExceeded. Thread-safe.
absl::StatusOr<Answer> ReadAnswer(Channel& channel, size_t max_body_bytes, const Patience& patience);

// The words for a status of HTTP, such as "Not Found".
absl::string_view Reason(int status);

}  // namespace heaptap::http

#endif  // HEAPTAP_USERSPACE_HTTP_WIRE_H_
