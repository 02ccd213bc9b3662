// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/client.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/elf/file_descriptor.h"
#include "userspace/export/printable_text.h"
#include "userspace/service/messages.h"

namespace heaptap::cli {
namespace {

using nlohmann::json;

// Marks a status as "no daemon"; the status message is for people.
constexpr char kNoDaemonPayload[] = "heaptap/no-daemon";
// Of an error message from the daemon.
constexpr size_t kMaxMessageBytes = 1000;
// Documents have five levels. The JSON writer recurses once per level.
constexpr int kMaxDepth = 32;
constexpr size_t kReadBytes = 64 << 10;

absl::Status NoDaemon(absl::string_view socket) {
  absl::Status status =
      absl::UnavailableError(absl::StrCat("no daemon at ", exporter::Printable(socket),
                                          "; start one with heaptap daemon, or name its socket with --socket"));
  status.SetPayload(kNoDaemonPayload, absl::Cord());
  return status;
}

absl::StatusOr<elf::FileDescriptor> Connect(const std::string& path, absl::Duration limit) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--socket: expected a path of 1 to ", sizeof(address.sun_path) - 1, " bytes"));
  }
  memcpy(address.sun_path, path.data(), path.size());
  elf::FileDescriptor connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // Limits the wait of connect(2) when the queue of connections is full.
  const timeval time = absl::ToTimeval(limit);
  if (!connection.valid() || setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time)) != 0) {
    return absl::InternalError(absl::StrCat("socket: ", strerror(errno)));
  }
  if (connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return connection;
  if (errno == ENOENT || errno == ENOTDIR || errno == ECONNREFUSED) return NoDaemon(path);
  const std::string what = absl::StrCat("the daemon's socket ", exporter::Printable(path));
  if (errno == EACCES || errno == EPERM) {
    return absl::PermissionDeniedError(
        absl::StrCat("no permission to use ", what, ": run as root or as a member of the daemon's group"));
  }
  if (errno == EAGAIN)
    return absl::DeadlineExceededError(
        absl::StrCat(what, " does not accept connections; the daemon may be stopped or overloaded"));
  return absl::FailedPreconditionError(absl::StrCat(what, ": ", strerror(errno)));
}

absl::Status SendAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return absl::DataLossError(absl::StrCat("cannot send the request: ", strerror(errno)));
    bytes.remove_prefix(sent);
  }
  return absl::OkStatus();
}

// Reads some bytes; returns 0 at the end. DeadlineExceeded.
absl::StatusOr<size_t> Receive(int fd, absl::Time deadline, char* buffer, size_t size) {
  for (;;) {
    const absl::Duration left = deadline - absl::Now();
    pollfd polled = {fd, POLLIN, 0};
    // Rounded up, so that a rest of less than a millisecond does not spin.
    const int ready =
        left <= absl::ZeroDuration() ? 0 : poll(&polled, 1, static_cast<int>(absl::ToInt64Milliseconds(left) + 1));
    if (ready == 0) return absl::DeadlineExceededError("the answer takes too long");
    if (ready > 0) {
      const ssize_t got = recv(fd, buffer, size, MSG_DONTWAIT);
      if (got >= 0) return static_cast<size_t>(got);
    }
    // A reset counts as the end.
    if (errno == ECONNRESET) return 0;
    if (errno != EINTR && errno != EAGAIN) {
      return absl::DataLossError(absl::StrCat("cannot read the answer: ", strerror(errno)));
    }
  }
}

// Parses a document; returns a discarded value if the text is not JSON or is nested too deeply.
json ParseShallow(const std::string& text) {
  bool is_deep = false;
  const auto keep = [&is_deep](int depth, json::parse_event_t, const json&) {
    is_deep |= depth > kMaxDepth;
    return depth <= kMaxDepth;
  };
  json document = json::parse(text, keep, /*allow_exceptions=*/false);
  return is_deep ? json(json::value_t::discarded) : document;
}

}  // namespace

bool IsNoDaemon(const absl::Status& status) { return status.GetPayload(kNoDaemonPayload).has_value(); }

absl::Status Client::Unexpected(absl::string_view target, absl::string_view what) const {
  return absl::DataLossError(absl::StrCat("the answer of ", exporter::Printable(socket_), " to ", target,
                                          " is not as expected: ", exporter::Printable(what),
                                          "; use heaptap and a daemon of the same release"));
}

absl::StatusOr<ReceivedAnswer> Client::Exchange(const char* method, const std::string& target,
                                                size_t max_body_bytes) const {
  absl::StatusOr<elf::FileDescriptor> connection = Connect(socket_, limits_.connect);
  if (!connection.ok()) return connection.status();
  const absl::Time deadline = absl::Now() + limits_.answer;
  const std::string request = absl::StrCat(method, " ", target, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n",
                                           "Content-Length: 0\r\n\r\n");
  const absl::Status sent = SendAll(connection->get(), request);
  AnswerParser parser(max_body_bytes);
  std::string buffer(kReadBytes, '\0');
  for (;;) {
    absl::StatusOr<size_t> size = Receive(connection->get(), deadline, buffer.data(), buffer.size());
    if (!size.ok()) return size.status();
    if (*size == 0) {
      // A server may refuse before it has read the request; its answer says more than EPIPE.
      if (absl::Status status = parser.End(); !status.ok()) return sent.ok() ? status : sent;
      return std::move(parser).Take();
    }
    absl::StatusOr<bool> whole = parser.Add(absl::string_view(buffer).substr(0, *size));
    if (!whole.ok()) return whole.status();
    if (*whole) return std::move(parser).Take();
  }
}

absl::Status Client::Refusal(const ReceivedAnswer& answer) const {
  const json document = ParseShallow(answer.body.substr(0, limits_.json_bytes));
  std::string message = absl::StrCat("the daemon at ", exporter::Printable(socket_), " answers with status ",
                                     answer.status, " without a reason");
  if (document.is_object() && document.contains("error") && document["error"].is_string()) {
    message = service::Printable(document["error"].get_ref<const std::string&>().substr(0, kMaxMessageBytes));
  }
  switch (answer.status) {
    case 400:
      return absl::InvalidArgumentError(message);
    case 403:
      return absl::PermissionDeniedError(message);
    case 404:
      return absl::NotFoundError(message);
    case 409:
      return absl::FailedPreconditionError(message);
    case 503:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::StatusOr<std::string> Client::Ask(const char* method, const std::string& target, size_t max_body_bytes) const {
  absl::StatusOr<ReceivedAnswer> answer = Exchange(method, target, max_body_bytes);
  if (!answer.ok()) {
    const absl::Status& status = answer.status();
    if (!absl::IsDataLoss(status) && !absl::IsResourceExhausted(status) && !absl::IsDeadlineExceeded(status)) {
      return status;
    }
    return absl::Status(status.code(),
                        absl::StrCat(exporter::Printable(socket_), ", ", target, ": ", status.message()));
  }
  if (answer->status != 200) return Refusal(*answer);
  return std::move(answer->body);
}

absl::StatusOr<json> Client::Parse(const std::string& target, const std::string& body) const {
  json document = ParseShallow(body);
  if (document.is_discarded()) return Unexpected(target, "it is not JSON, or nested too deeply");
  if (!document.is_object()) return Unexpected(target, "it is not a JSON object");
  return document;
}

absl::StatusOr<std::string> Client::GetDump(const std::string& target) const {
  return Ask("GET", target, limits_.dump_bytes);
}

absl::StatusOr<json> Client::GetJson(const std::string& target) const {
  absl::StatusOr<std::string> body = Ask("GET", target, limits_.json_bytes);
  if (!body.ok()) return body.status();
  absl::StatusOr<json> document = Parse(target, *body);
  if (!document.ok()) return document;
  const auto version = document->find("schema_version");
  if (version == document->end() || *version != kSchemaVersion) {
    return Unexpected(target, absl::StrCat("schema_version is not ", kSchemaVersion));
  }
  return document;
}

absl::StatusOr<json> Client::Post(const std::string& target) const {
  absl::StatusOr<std::string> body = Ask("POST", target, limits_.json_bytes);
  if (!body.ok()) return body.status();
  if (body->empty()) return json::object();
  return Parse(target, *body);
}

absl::Status Client::Order(const std::string& target) const { return Post(target).status(); }

void AddSocketOption(Command command, std::string& socket) {
  command.Add("--socket", socket, absl::StrCat("connect to the daemon at this socket (default: ", kDefaultSocket, ")"))
      .Type("PATH");
}

}  // namespace heaptap::cli
