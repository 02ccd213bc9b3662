// SPDX-License-Identifier: Apache-2.0
#include "userspace/service/http_service.h"

#include <httplib.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/service/http_endpoints.h"
#include "userspace/service/http_listener.h"
#include "userspace/service/http_request_reader.h"
#include "userspace/service/messages.h"

namespace heaptap::service {
namespace {

// Headers of every answer: browsers neither guess the type nor cache.
constexpr std::pair<const char*, const char*> kHeaders[] = {
    {"X-Content-Type-Options", "nosniff"},
    {"Cache-Control", "no-store"},
};

const char* Reason(int status) {
  switch (status) {
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 431:
      return "Request Header Fields Too Large";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Error";
  }
}

// The library's stream: reads from a request in memory, writes to the client.
class RequestStream : public httplib::Stream {
 public:
  RequestStream(absl::string_view request, HttpChannel& channel, absl::Duration answer_time)
      : request_(request), channel_(channel), answer_time_(answer_time) {}

  bool is_readable() const override { return !request_.empty(); }
  bool is_writable() const override { return true; }

  ssize_t read(char* to, size_t size) override {
    const size_t count = std::min(size, request_.size());
    std::copy_n(request_.data(), count, to);
    request_.remove_prefix(count);
    return static_cast<ssize_t>(count);
  }

  ssize_t write(const char* from, size_t size) override {
    // The time starts with the first byte: the client is not responsible for the time to make the answer.
    if (deadline_ == absl::InfinitePast()) deadline_ = absl::Now() + answer_time_;
    is_broken_ = is_broken_ || !channel_.Write(absl::string_view(from, size), deadline_);
    return is_broken_ ? -1 : static_cast<ssize_t>(size);
  }

  void get_remote_ip_and_port(std::string&, int& port) const override { port = 0; }
  void get_local_ip_and_port(std::string&, int& port) const override { port = 0; }
  // The library only checks whether select(2) could handle this number.
  socket_t socket() const override { return 0; }

  bool is_broken() const { return is_broken_; }

 private:
  absl::string_view request_;
  HttpChannel& channel_;
  absl::Duration answer_time_;
  absl::Time deadline_ = absl::InfinitePast();
  bool is_broken_ = false;
};

// The connection that this thread serves: the library's handlers get only the first line of the request.
struct Connection {
  HttpChannel& channel;
  const std::optional<Peer>& peer;
  std::string body = {};  // of the request
};
thread_local Connection* this_connection = nullptr;

}  // namespace

class HttpService::Library : public httplib::Server {
 public:
  Library(Collector& collector, const HttpLimits& limits, std::optional<gid_t> group)
      : collector_(collector), symbols_(collector), limits_(limits), group_(group) {
    httplib::Headers headers;
    for (const auto& [name, value] : kHeaders) headers.emplace(name, value);
    set_default_headers(std::move(headers));
    set_keep_alive_max_count(limits.requests_per_connection);
    set_keep_alive_timeout(absl::ToInt64Seconds(limits.idle));
    // Runs before the library's own routing, so that no regular expression ever sees a client's text.
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      Answer(request, response);
      return HandlerResponse::Handled;
    });
    set_exception_handler([](const httplib::Request&, httplib::Response& response, const std::exception_ptr&) {
      response.status = 500;
      response.set_content("internal error\n", kPlainText);
    });
  }

  void Serve(HttpChannel& channel, const std::optional<Peer>& peer) {
    Connection connection = {channel, peer};
    this_connection = &connection;
    HttpRequestReader reader(channel, limits_);
    for (size_t left = limits_.requests_per_connection; left > 0; --left) {
      std::optional<IncomingRequest> request = reader.Next();
      if (!request.has_value()) break;
      if (request->refusal == 0 && !peer.has_value()) request->refusal = RefuseBrowsers(request->head);
      if (request->refusal != 0) {
        channel.Write(Refusal(request->refusal), absl::Now() + limits_.idle);
        break;
      }
      connection.body = std::move(request->body);
      if (!AnswerOne(request->head, channel, left > 1 && request->head.keep_alive)) break;
    }
    this_connection = nullptr;
  }

 private:
  static int RefuseBrowsers(const RequestHead& head) {
    return head.is_cross_site || !IsLoopbackHost(head.host) ? 403 : 0;
  }

  // False: close the connection.
  bool AnswerOne(const RequestHead& head, HttpChannel& channel, bool keep_alive) {
    // Headers are dropped here.
    const std::string text = absl::StrCat(head.line, "\r\n\r\n");
    RequestStream stream(text, channel, limits_.answer_time);
    bool is_closed = false;
    const bool is_answered = process_request(stream, !keep_alive, is_closed, nullptr);
    return is_answered && keep_alive && !stream.is_broken();
  }

  void Answer(const httplib::Request& request, httplib::Response& response) {
    const HttpRequest asked = {.method = request.method,
                               .path = request.path,
                               .parameters = request.params,
                               .body = std::move(this_connection->body)};
    HttpCall call = {.collector = collector_,
                     .symbols = symbols_,
                     .request = asked,
                     .access = Access(this_connection->peer, group_),
                     .sleep = [](absl::Duration duration) { return this_connection->channel.Sleep(duration); }};
    HttpAnswer answer = AnswerCall(call);
    response.status = answer.status;
    for (const auto& [name, value] : answer.headers) response.set_header(name, value);
    response.set_header("Content-Type", answer.content_type);
    response.body = std::move(answer.body);
  }

  Collector& collector_;
  ProcessSymbols symbols_;
  const HttpLimits limits_;
  const std::optional<gid_t> group_;
};

HttpService::HttpService(Collector& collector, const HttpLimits& limits, std::optional<gid_t> group)
    : library_(std::make_unique<Library>(collector, limits, group)) {}

HttpService::~HttpService() = default;

void HttpService::Serve(HttpChannel& channel, const std::optional<Peer>& peer) {
  try {
    library_->Serve(channel, peer);
  } catch (const std::exception& error) {
    // Most likely out of memory; other clients are still served.
    Say(absl::StrCat("could not answer an HTTP client: ", error.what()));
  }
}

std::string HttpService::Refusal(int status) {
  const std::string body = absl::StrCat(Reason(status), "\n");
  std::string answer = absl::StrCat("HTTP/1.1 ", status, " ", Reason(status), "\r\n");
  if (status == 405) answer.append("Allow: GET, HEAD, POST\r\n");
  for (const auto& [name, value] : kHeaders) absl::StrAppend(&answer, name, ": ", value, "\r\n");
  absl::StrAppend(&answer, "Content-Type: text/plain\r\nContent-Length: ", body.size(), "\r\nConnection: close\r\n\r\n",
                  body);
  return answer;
}

}  // namespace heaptap::service
