// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/ask/client.h"

#include <stdlib.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/messages.h"
#include "userspace/base/printable_text.h"
#include "userspace/cli/words/shell_word.h"
#include "userspace/http/client.h"
#include "userspace/json/json.h"

namespace heaptap::cli {
namespace {

constexpr char kSocketVariable[] = "HEAPTAP_SOCKET";

// Marks a status as "no daemon"; the status message is for people.
constexpr char kNoDaemonPayload[] = "heaptap/no-daemon";
// At most this much of the daemon's error message is shown.
constexpr size_t kMaxMessageBytes = 1000;
// Documents have five levels. The JSON writer recurses once per level.
constexpr int kMaxDepth = 32;

absl::Status NoDaemon(absl::string_view socket) {
  absl::Status status = absl::UnavailableError(absl::StrCat(
      "no daemon at ", base::Printable(socket), "; start one with heaptap daemon, or name its socket with --socket"));
  status.SetPayload(kNoDaemonPayload, absl::Cord());
  return status;
}

// The error of a connection, for the user.
absl::Status ExplainConnect(const absl::Status& status, const std::string& path) {
  const std::string what = absl::StrCat("the daemon's socket ", base::Printable(path));
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return NoDaemon(path);
    case absl::StatusCode::kInvalidArgument:
      return absl::InvalidArgumentError(absl::StrCat("--socket: ", status.message()));
    case absl::StatusCode::kPermissionDenied:
      return absl::PermissionDeniedError(
          absl::StrCat("no permission to use ", what, ": run as root or as a member of the daemon's group"));
    case absl::StatusCode::kDeadlineExceeded:
      return absl::DeadlineExceededError(
          absl::StrCat(what, " does not accept connections; the daemon may be stopped or overloaded"));
    default:
      return absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
  }
}

// Parses a document; returns a discarded value if the text is not JSON or is nested too deeply.
nlohmann::json ParseShallow(const std::string& text) {
  bool is_deep = false;
  const auto keep = [&is_deep](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) {
    is_deep |= depth > kMaxDepth;
    return depth <= kMaxDepth;
  };
  nlohmann::json document = nlohmann::json::parse(text, keep, /*allow_exceptions=*/false);
  return is_deep ? nlohmann::json(nlohmann::json::value_t::discarded) : document;
}

}  // namespace

std::string DefaultSocket() {
  const char* const set = getenv(kSocketVariable);
  return set == nullptr || *set == '\0' ? kDefaultSocket : set;
}

std::string SocketWords(const std::string& socket) {
  return socket == DefaultSocket() ? "" : absl::StrCat(" --socket ", ShellWord(base::Printable(socket)));
}

bool IsNoDaemon(const absl::Status& status) { return status.GetPayload(kNoDaemonPayload).has_value(); }

absl::Status Client::Unexpected(absl::string_view target, absl::string_view what) const {
  return absl::DataLossError(absl::StrCat("the answer of ", base::Printable(socket_), " to ", target,
                                          " is not as expected: ", base::Printable(what),
                                          "; use heaptap and a daemon of the same release"));
}

absl::Status Client::Refusal(const http::Answer& answer) const {
  const nlohmann::json document = ParseShallow(answer.body.substr(0, limits_.json_bytes));
  std::string message = absl::StrCat("the daemon at ", base::Printable(socket_), " answers with status ", answer.status,
                                     " without a reason");
  if (document.is_object() && document.contains("error") && document["error"].is_string()) {
    message = base::AsciiOnly(document["error"].get_ref<const std::string&>().substr(0, kMaxMessageBytes));
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
    case 429:
      return absl::ResourceExhaustedError(message);
    case 503:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::StatusOr<http::Answer> Client::Exchange(const char* method, const std::string& target,
                                              size_t max_body_bytes) const {
  const absl::StatusOr<base::FileDescriptor> connection = http::Connect(socket_, limits_.connect);
  if (!connection.ok()) return ExplainConnect(connection.status(), socket_);
  absl::StatusOr<http::Answer> answer = http::Exchange(*connection, method, target, max_body_bytes, limits_.answer);
  if (!answer.ok()) {
    const absl::Status& status = answer.status();
    return absl::Status(status.code(), absl::StrCat(base::Printable(socket_), ", ", target, ": ", status.message()));
  }
  return answer;
}

absl::StatusOr<std::string> Client::Ask(const char* method, const std::string& target, size_t max_body_bytes) const {
  const base::Instant deadline = base::Now() + limits_.turn;
  while (true) {
    absl::StatusOr<http::Answer> answer = Exchange(method, target, max_body_bytes);
    if (!answer.ok()) return answer.status();
    if (answer->status == 200) return std::move(answer->body);
    const absl::Duration wait = absl::Seconds(answer->seconds_to_wait.value_or(0));
    if (answer->status != 429 || wait == absl::ZeroDuration() || base::Now() + wait > deadline) return Refusal(*answer);
    base::Sleep(wait);
  }
}

absl::StatusOr<nlohmann::json> Client::Parse(const std::string& target, const std::string& body) const {
  nlohmann::json document = ParseShallow(body);
  if (document.is_discarded()) return Unexpected(target, "it is not JSON, or nested too deeply");
  if (!document.is_object()) return Unexpected(target, "it is not a JSON object");
  return document;
}

absl::StatusOr<std::string> Client::GetDump(const std::string& target) const {
  return Ask("GET", target, limits_.dump_bytes);
}

absl::StatusOr<nlohmann::json> Client::GetJson(const std::string& target) const {
  absl::StatusOr<std::string> body = Ask("GET", target, limits_.json_bytes);
  if (!body.ok()) return body.status();
  absl::StatusOr<nlohmann::json> document = Parse(target, *body);
  if (!document.ok()) return document;
  const auto version = document->find("schema_version");
  if (version == document->end() || *version != json::kSchemaVersion) {
    return Unexpected(target, absl::StrCat("schema_version is not ", json::kSchemaVersion));
  }
  return document;
}

absl::StatusOr<nlohmann::json> Client::Post(const std::string& target) const {
  absl::StatusOr<std::string> body = Ask("POST", target, limits_.json_bytes);
  if (!body.ok()) return body.status();
  if (body->empty()) return nlohmann::json::object();
  return Parse(target, *body);
}

absl::Status Client::Order(const std::string& target) const { return Post(target).status(); }

void AddSocketOption(Command command, std::string& socket) {
  command
      .Add("--socket", socket,
           absl::StrCat("connect to the daemon at this socket (default: $", kSocketVariable, ", or ", kDefaultSocket,
                        ")"))
      .Type("PATH");
}

}  // namespace heaptap::cli
