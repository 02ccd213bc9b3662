// SPDX-License-Identifier: Apache-2.0
//
// Asks a running `heaptap daemon` over its Unix socket. What listens there may be anything: the time and the size of an
// answer are bounded, and no text of it reaches a terminal as it is.
//
// Not thread safe.
#ifndef HEAPTAP_USERSPACE_CLI_CLIENT_H_
#define HEAPTAP_USERSPACE_CLI_CLIENT_H_

#include <sys/types.h>

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "userspace/cli/command_line.h"
#include "userspace/cli/http_answer.h"

namespace heaptap::cli {

inline constexpr char kDefaultSocket[] = "/run/heaptap/heaptap.sock";
// Where a daemon's recording stays when the daemon ends.
inline constexpr char kDefaultPinFolder[] = "/sys/fs/bpf/heaptap";
// Of the JSON documents between the daemon and us.
inline constexpr int kSchemaVersion = 1;

struct ClientLimits {
  absl::Duration connect = absl::Seconds(2);
  // A dump of a stopped process with a large profile takes that long before the daemon gives up itself.
  absl::Duration answer = absl::Seconds(70);
  size_t dump_bytes = 256 << 20;
  // A process is about 700 bytes.
  size_t json_bytes = 32 << 20;
};

// Errors of all calls:
//   IsNoDaemon(): nobody listens; the message says how to start a daemon.
//   PermissionDenied: we may not use the socket, or the daemon refuses (403).
//   NotFound (404), InvalidArgument (400), FailedPrecondition (409), Internal, Unavailable: as the daemon says.
//   DataLoss, ResourceExhausted, DeadlineExceeded: what came is no answer, too long, or late.
class Client {
 public:
  explicit Client(std::string socket, ClientLimits limits = {}) : socket_(std::move(socket)), limits_(limits) {}

  // The body of a dump.
  absl::StatusOr<std::string> GetDump(const std::string& target) const;
  // An object with our schema_version.
  absl::StatusOr<nlohmann::json> GetJson(const std::string& target) const;
  // An object, {} if the answer is empty.
  absl::StatusOr<nlohmann::json> Post(const std::string& target) const;
  // The same for an order whose answer says no more than that it was carried out.
  absl::Status Order(const std::string& target) const;

  const std::string& socket() const { return socket_; }
  // What came from `target` is not what was agreed on: `what` says where.
  absl::Status Unexpected(absl::string_view target, absl::string_view what) const;

 private:
  absl::StatusOr<std::string> Ask(const char* method, const std::string& target, size_t max_body_bytes) const;
  absl::StatusOr<HttpAnswer> Exchange(const char* method, const std::string& target, size_t max_body_bytes) const;
  absl::Status Refusal(const HttpAnswer& answer) const;
  absl::StatusOr<nlohmann::json> Parse(const std::string& target, const std::string& body) const;

  const std::string socket_;
  const ClientLimits limits_;
};

// Whether a call failed because nobody listens at the socket.
bool IsNoDaemon(const absl::Status& status);

// Adds --socket PATH.
void AddSocketOption(Command command, std::string& socket);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_CLIENT_H_
