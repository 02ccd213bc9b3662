// SPDX-License-Identifier: Apache-2.0
//
// Asks a running `heaptap daemon` over its Unix socket. The server is not trusted: the time and the size of an answer
// are bounded, and its text is made printable before it reaches a terminal.
//
// Not thread safe.
#ifndef HEAPTAP_USERSPACE_CLI_ASK_CLIENT_H_
#define HEAPTAP_USERSPACE_CLI_ASK_CLIENT_H_

#include <sys/types.h>

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "userspace/cli/words/command_line.h"

namespace heaptap::http {
struct Answer;
}

namespace heaptap::cli {

// Where a daemon without options listens.
inline constexpr char kDefaultSocket[] = "/run/heaptap/heaptap.sock";
// $HEAPTAP_SOCKET, or kDefaultSocket.
std::string DefaultSocket();
// What a command needs to ask the daemon at this socket: " --socket PATH", or "" at the default.
std::string SocketWords(const std::string& socket);

// Where a recording stays when its daemon ends.
inline constexpr char kDefaultPinFolder[] = "/sys/fs/bpf/heaptap";

struct ClientLimits {
  absl::Duration connect = absl::Seconds(2);
  // The daemon itself may need this long, for a stopped process with a large profile, before it gives up.
  absl::Duration answer = absl::Seconds(70);
  // The wait for the daemon to have time for this user again.
  absl::Duration turn = absl::Seconds(10);
  size_t dump_bytes = 256 << 20;
  // A process takes about 700 bytes.
  size_t json_bytes = 32 << 20;
};

// Errors of all calls:
//   IsNoDaemon(): nothing listens on the socket; the message says how to start a daemon.
//   PermissionDenied: this user may not use the socket, or the daemon refuses (403).
//   NotFound (404), InvalidArgument (400), FailedPrecondition (409), Internal, Unavailable: with the daemon's message.
//   ResourceExhausted (429): the daemon has no time for this user within ClientLimits::turn; with its message.
//   DataLoss, ResourceExhausted, DeadlineExceeded: the answer is malformed, too long, or late.
class Client {
 public:
  explicit Client(std::string socket, ClientLimits limits = {}) : socket_(std::move(socket)), limits_(limits) {}

  // The body of a dump.
  absl::StatusOr<std::string> GetDump(const std::string& target) const;
  // An object with our schema_version.
  absl::StatusOr<nlohmann::json> GetJson(const std::string& target) const;
  // An object, {} if the answer is empty.
  absl::StatusOr<nlohmann::json> Post(const std::string& target) const;
  // A Post whose answer only confirms the order.
  absl::Status Order(const std::string& target) const;

  const std::string& socket() const { return socket_; }
  // The error for an answer to `target` that violates the protocol; `what` says how.
  absl::Status Unexpected(absl::string_view target, absl::string_view what) const;

 private:
  absl::StatusOr<std::string> Ask(const char* method, const std::string& target, size_t max_body_bytes) const;
  // Asks once.
  absl::StatusOr<http::Answer> Exchange(const char* method, const std::string& target, size_t max_body_bytes) const;
  absl::Status Refusal(const http::Answer& answer) const;
  absl::StatusOr<nlohmann::json> Parse(const std::string& target, const std::string& body) const;

  const std::string socket_;
  const ClientLimits limits_;
};

// Whether a call failed because nothing listens on the socket.
bool IsNoDaemon(const absl::Status& status);

// Adds --socket PATH.
void AddSocketOption(Command command, std::string& socket);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_ASK_CLIENT_H_
