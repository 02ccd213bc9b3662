// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/endpoints.h"

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "userspace/api/processes_json.h"
#include "userspace/base/printable_text.h"
#include "userspace/base/subordinate_ids.h"
#include "userspace/http/answer_room.h"
#include "userspace/profile/figures.h"
#include "userspace/profile/snapshot.h"

namespace heaptap::api {
namespace {

absl::Status NoSuchProcess(pid_t pid) { return absl::NotFoundError(absl::StrCat("process ", pid, " is not recorded")); }

int HttpStatus(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kOutOfRange:
      return 406;  // not in this format
    case absl::StatusCode::kFailedPrecondition:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return 503;
    default:
      return 500;
  }
}

http::Response ErrorAnswer(ErrorForm form, const absl::Status& status) {
  http::Response answer = {.status = HttpStatus(status)};
  if (const std::optional<int64_t> seconds = http::SecondsToWait(status); seconds.has_value()) {
    answer.headers.emplace_back("Retry-After", absl::StrCat(*seconds));
  }
  if (form == ErrorForm::kJson) {
    answer.content_type = http::kJson;
    answer.body = ErrorJson(status.message());
    return answer;
  }
  if (form == ErrorForm::kGo) answer.headers.emplace_back("X-Go-Pprof", "1");
  answer.content_type = http::kPlainText;
  answer.body = absl::StrCat(absl::StripSuffix(status.message(), "\n"), "\n");
  return answer;
}

http::Response NoSuchPath() { return {.status = 404, .content_type = http::kPlainText, .body = "no such page\n"}; }

bool Allows(uint8_t methods, const std::string& method) {
  const uint8_t asked = method == "GET" ? kGet : method == "HEAD" ? kHead : method == "POST" ? kPost : 0;
  return (methods & asked) != 0;
}

http::Response WrongMethod(uint8_t methods) {
  std::vector<absl::string_view> names;
  if (methods & kGet) names.push_back("GET");
  if (methods & kHead) names.push_back("HEAD");
  if (methods & kPost) names.push_back("POST");
  const std::string allowed = absl::StrJoin(names, ", ");
  return {.status = 405,
          .content_type = http::kPlainText,
          .body = absl::StrCat("this page supports ", allowed, "\n"),
          .headers = {{"Allow", allowed}}};
}

template <typename Endpoint>
const Endpoint* FindPath(std::initializer_list<absl::Span<const Endpoint>> tables, absl::string_view path) {
  for (absl::Span<const Endpoint> table : tables) {
    for (const Endpoint& endpoint : table) {
      if (endpoint.path == path) return &endpoint;
    }
  }
  return nullptr;
}

// A path, with the process if the path names one.
struct ProcessPath {
  std::optional<pid_t> pid;
  absl::string_view path;
};

std::optional<ProcessPath> SplitPath(absl::string_view path) {
  if (!absl::ConsumePrefix(&path, "pid/")) return ProcessPath{std::nullopt, path};
  const size_t slash = path.find('/');
  if (slash == absl::string_view::npos) return std::nullopt;
  const std::optional<uint32_t> pid = ParseNumber(path.substr(0, slash), 1, kMaxPid);
  if (!pid.has_value()) return std::nullopt;
  return ProcessPath{static_cast<pid_t>(*pid), path.substr(slash + 1)};
}

absl::Status SeveralProcesses(absl::Span<const profile::ProcessSummary> processes) {
  std::string message = "several processes are recorded; choose one with ?pid=PID:\n";
  for (const profile::ProcessSummary& process : processes) {
    absl::StrAppend(&message, process.pid, " ", base::Printable(process.command), "\n");
  }
  return absl::InvalidArgumentError(message);
}

absl::StatusOr<profile::NamedProcess> ChooseProcess(Call& call, std::optional<pid_t> pid) {
  if (const std::optional<std::string> text = call.request.Parameter("pid"); !pid.has_value() && text.has_value()) {
    pid = ParseNumber(*text, 1, kMaxPid);
    if (!pid.has_value()) return absl::InvalidArgumentError("the parameter pid must be a PID");
  }
  if (pid.has_value()) return VisibleProcess(call, *pid);
  absl::StatusOr<std::vector<profile::ProcessSummary>> processes = VisibleProcesses(call);
  if (!processes.ok()) return processes.status();
  if (processes->empty()) return absl::NotFoundError("no process is recorded");
  if (processes->size() > 1) return SeveralProcesses(*processes);
  profile::ProcessSummary& only = processes->front();
  return profile::NamedProcess{
      .pid = only.pid, .process_id = only.process_id, .owner = only.owner, .command = std::move(only.command)};
}

http::Response AnswerOrError(ErrorForm form, Reply reply) {
  return reply.ok() ? std::move(*reply) : ErrorAnswer(form, reply.status());
}

}  // namespace

http::Response FieldsAnswer(const json::Json& fields) {
  json::Json document = {{"schema_version", json::kSchemaVersion}};
  document.SetAll(fields);
  return {.content_type = http::kJson, .body = absl::StrCat(document.Text(), "\n")};
}

std::optional<uint32_t> ParseNumber(absl::string_view text, uint32_t least, uint32_t most) {
  // SimpleAtoi accepts signs and spaces.
  const bool is_plain = !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit) &&
                        (text.size() == 1 || text[0] != '0');
  uint32_t number = 0;
  if (!is_plain || !absl::SimpleAtoi(text, &number) || number < least || number > most) return std::nullopt;
  return number;
}

absl::StatusOr<std::vector<profile::ProcessSummary>> VisibleProcesses(Call& call) {
  if (absl::Status status = call.asker.Pay(); !status.ok()) return status;
  absl::StatusOr<std::vector<profile::ProcessSummary>> processes = call.collector.Processes(call.asker);
  if (processes.ok()) {
    std::erase_if(*processes, [&](const profile::ProcessSummary& process) { return !call.access.Sees(process.owner); });
  }
  return processes;
}

absl::StatusOr<profile::NamedProcess> VisibleProcess(Call& call, pid_t pid) {
  if (absl::Status status = call.asker.Pay(); !status.ok()) return status;
  absl::StatusOr<profile::NamedProcess> process = call.collector.Find(pid, call.asker);
  if (absl::IsNotFound(process.status()) || (process.ok() && !call.access.Sees(process->owner))) {
    return NoSuchProcess(pid);
  }
  return process;
}

namespace {

http::Response AnswerCall(Call& call) {
  absl::string_view path = call.request.path;
  if (!absl::ConsumePrefix(&path, "/")) return NoSuchPath();
  if (const auto* endpoint =
          FindPath<CollectorEndpoint>({ApiEndpoints(), StatusEndpoints(), PageEndpoints(), HistoryEndpoints()}, path)) {
    if (!Allows(endpoint->methods, call.request.method)) return WrongMethod(endpoint->methods);
    return AnswerOrError(endpoint->errors, endpoint->answer(call));
  }
  const std::optional<ProcessPath> split = SplitPath(path);
  if (!split.has_value()) return NoSuchPath();
  const auto* endpoint = FindPath<ProcessEndpoint>(
      {MtevEndpoints(), PprofEndpoints(), GoPprofEndpoints(), ApiProcessEndpoints(), PageProcessEndpoints()},
      split->path);
  if (endpoint == nullptr || (endpoint->needs_prefix && !split->pid.has_value())) return NoSuchPath();
  if (!Allows(endpoint->methods, call.request.method)) return WrongMethod(endpoint->methods);
  const absl::StatusOr<profile::NamedProcess> process = ChooseProcess(call, split->pid);
  if (!process.ok()) return ErrorAnswer(endpoint->errors, process.status());
  return AnswerOrError(endpoint->errors, endpoint->answer(call, *process));
}

}  // namespace

http::Handler MakeHandler(Collector& collector, worker::Crews& crews, HistoryPlace* history) {
  const auto symbols = std::make_shared<ProcessSymbols>(collector, crews);
  const auto time = std::make_shared<http::ClientTime>();
  const auto room = std::make_shared<http::AnswerRoom>(base::SubordinateIds::OfSystem());
  return [&collector, symbols, time, room, history](const http::Request& request, const http::Access& access,
                                                    const http::Sleep& sleep) {
    http::Asker asker(*time, access.payer(), room.get());
    Call call = {.collector = collector,
                 .symbols = *symbols,
                 .request = request,
                 .access = access,
                 .asker = asker,
                 .sleep = sleep,
                 .history = history};
    http::Response response = AnswerCall(call);
    response.room = asker.EndAnswer(response.body.size());
    return response;
  };
}

}  // namespace heaptap::api
