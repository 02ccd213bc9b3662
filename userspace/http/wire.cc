// SPDX-License-Identifier: Apache-2.0
//
// Boost.Beast parses both directions. Its basic_parser is used directly: Beast's own types for requests and answers
// would take four times as long to compile, and have fields that nothing reads.
#include "userspace/http/wire.h"

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/status.hpp>
#include <charconv>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/base/clock.h"

namespace heaptap::http {
namespace {

namespace beast = boost::beast;
using beast::error_code;
using beast::http::error;
using beast::http::field;
using beast::http::verb;

constexpr absl::string_view kHeadEnd = "\r\n\r\n";
// RFC 9112, 3 recommends at least 8000.
constexpr size_t kMaxTargetBytes = 8192;
constexpr size_t kReadBytes = 16 << 10;

absl::string_view ToAbsl(beast::string_view text) { return {text.data(), text.size()}; }

boost::asio::const_buffer Buffer(absl::string_view bytes) { return {bytes.data(), bytes.size()}; }

std::string Decode(absl::string_view text, bool plus_is_space) {
  constexpr size_t kEscape = 3;  // %XX
  std::string decoded;
  while (!text.empty()) {
    unsigned char byte = 0;
    if (text[0] == '%' && text.size() >= kEscape &&
        std::from_chars(text.data() + 1, text.data() + kEscape, byte, 16).ptr == text.data() + kEscape) {
      decoded.push_back(static_cast<char>(byte));
      text.remove_prefix(kEscape);
    } else {
      decoded.push_back(plus_is_space && text[0] == '+' ? ' ' : text[0]);
      text.remove_prefix(1);
    }
  }
  return decoded;
}

// Whether only browsers send this header. A page cannot suppress any of them: a script cannot send headers that
// begin with Sec- (Fetch standard, "forbidden request-header"), and a User-Agent of its own needs the server's consent.
bool IsOfBrowser(absl::string_view name, absl::string_view value) {
  if (absl::EqualsIgnoreCase(name, "User-Agent")) return absl::StartsWith(value, "Mozilla/");
  return absl::StartsWithIgnoreCase(name, "Sec-") || absl::EqualsIgnoreCase(name, "Referer") ||
         absl::EqualsIgnoreCase(name, "Accept-Language") || absl::EqualsIgnoreCase(name, "Upgrade-Insecure-Requests");
}

// Collects the body. A subclass that sets an error ends the parsing.
template <bool is_request>
class Parser : public beast::http::basic_parser<is_request> {
 public:
  std::string body;

 protected:
  void on_request_impl(verb, beast::string_view, beast::string_view, int, error_code&) override {}
  void on_response_impl(int, beast::string_view, int, error_code&) override {}
  void on_header_impl(error_code&) override {}
  void on_body_init_impl(const boost::optional<uint64_t>&, error_code&) override {}
  size_t on_body_impl(beast::string_view part, error_code&) override {
    body.append(part.data(), part.size());
    return part.size();
  }
  void on_chunk_header_impl(uint64_t, beast::string_view, error_code&) override {}
  size_t on_chunk_body_impl(uint64_t, beast::string_view part, error_code& ec) override {
    return on_body_impl(part, ec);
  }
  void on_finish_impl(error_code&) override {}
};

class RequestParser : public Parser<true> {
 public:
  explicit RequestParser(const Limits& limits) {
    header_limit(limits.header_bytes);
    body_limit(limits.body_bytes);
  }

  // The status for an error of put(); 0: none.
  int StatusOf(const error_code& ec) const {
    if (!ec || refusal_ != 0) return refusal_;
    return ec == error::body_limit ? 413 : ec == error::bad_version ? 505 : 400;
  }

  IncomingRequest incoming;
  bool waits_for_continue = false;  // the client sends the body after "100 Continue"

 private:
  void on_request_impl(verb method, beast::string_view name, beast::string_view target, int version,
                       error_code& ec) override {
    incoming.keep_alive = version == 11;
    incoming.request.method = std::string(name);
    if (method != verb::get && method != verb::head && method != verb::post) return Refuse(405, ec);
    if (target.size() > kMaxTargetBytes) return Refuse(414, ec);
    if (!ParseTarget(ToAbsl(target), incoming.request)) Refuse(400, ec);
  }

  void on_field_impl(field known, beast::string_view name, beast::string_view value, error_code& ec) override {
    if (known == field::content_length) {
      // Beast also accepts lists and repetitions of one length.
      const bool is_number = ToAbsl(value).find_first_not_of("0123456789") == std::string::npos;
      if (std::exchange(has_length_, true) || !is_number) Refuse(400, ec);
    } else if (known == field::transfer_encoding) {
      Refuse(501, ec);
    } else if (known == field::content_encoding) {
      if (!beast::iequals(value, "identity")) Refuse(415, ec);
    } else if (known == field::expect) {
      if (!beast::iequals(value, "100-continue")) Refuse(417, ec);
      waits_for_continue = true;
    } else if (known == field::host) {
      if (std::exchange(has_host_, true)) Refuse(400, ec);
      incoming.host = std::string(value);
    } else if (known == field::origin) {
      if (origin_.has_value()) Refuse(400, ec);
      origin_ = std::string(value);
      incoming.request.is_of_browser = true;
    } else if (IsOfBrowser(ToAbsl(name), ToAbsl(value))) {
      incoming.request.is_of_browser = true;
      if (beast::iequals(name, "Sec-Fetch-Site")) {
        incoming.is_cross_site |= value != "same-origin" && value != "none";
      }
    }
  }

  // The page that this server has sent may send orders, too. For this page, the browser's Origin names the server as
  // Host does.
  void on_header_impl(error_code&) override {
    incoming.is_cross_site |= origin_.has_value() && *origin_ != absl::StrCat("http://", incoming.host);
  }

  void Refuse(int status, error_code& ec) {
    refusal_ = status;
    ec = error::bad_value;
  }

  int refusal_ = 0;
  bool has_length_ = false;
  bool has_host_ = false;
  std::optional<std::string> origin_;
};

class AnswerParser : public Parser<false> {
 public:
  explicit AnswerParser(size_t max_body_bytes) {
    header_limit(kMaxAnswerHeadBytes);
    body_limit(max_body_bytes);
    eager(true);
  }

  int status = 0;
  std::string location;
  std::optional<uint32_t> seconds_to_wait;

 private:
  void on_response_impl(int code, beast::string_view, int, error_code& ec) override {
    status = code;
    if (code < 100 || code > 599) ec = error::bad_status;
  }

  void on_field_impl(field name, beast::string_view, beast::string_view value, error_code& ec) override {
    // Beast ignores other encodings.
    if (name == field::transfer_encoding && !beast::iequals(value, "chunked")) ec = error::bad_transfer_encoding;
    if (name == field::location) location = std::string(value);
    if (name == field::retry_after) {
      uint32_t seconds = 0;
      if (absl::SimpleAtoi(ToAbsl(value), &seconds)) seconds_to_wait = seconds;
    }
  }
};

}  // namespace

absl::string_view Reason(int status) {
  return ToAbsl(beast::http::obsolete_reason(beast::http::int_to_status(status)));
}

bool ParseTarget(absl::string_view target, Request& request) {
  if (!absl::StartsWith(target, "/")) return false;
  target = target.substr(0, target.find('#'));
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(target, absl::MaxSplits('?', 1));
  if (absl::StrContains(parts.second, '?')) return false;
  request.path = Decode(parts.first, false);
  for (absl::string_view each : absl::StrSplit(parts.second, '&')) {
    const std::pair<absl::string_view, absl::string_view> parameter = absl::StrSplit(each, absl::MaxSplits('=', 1));
    if (parameter.first.empty()) continue;
    request.parameters.emplace(Decode(parameter.first, true), Decode(parameter.second, true));
  }
  return true;
}

bool RequestReader::ReadMore(base::Instant deadline) {
  char part[kReadBytes];
  const size_t got = channel_.Read(part, sizeof(part), deadline);
  bytes_.append(part, got);
  return got != 0;
}

std::optional<IncomingRequest> RequestReader::Next() {
  if (bytes_.empty() && !ReadMore(base::Now() + limits_.idle)) return std::nullopt;
  const base::Instant head_deadline = base::Now() + limits_.header_time;
  size_t searched = 0;
  size_t end;
  while ((end = absl::string_view(bytes_).find(kHeadEnd, searched)) == std::string::npos &&
         bytes_.size() <= limits_.header_bytes) {
    searched = bytes_.size() - std::min(bytes_.size(), kHeadEnd.size() - 1);
    if (!ReadMore(head_deadline)) return IncomingRequest{.refusal = 408};
  }
  if (end == std::string::npos || end + kHeadEnd.size() > limits_.header_bytes) return IncomingRequest{.refusal = 431};
  const absl::string_view head = absl::string_view(bytes_).substr(0, end + kHeadEnd.size());
  // Beast would join continued lines.
  if (absl::StrContains(head, "\r\n ") || absl::StrContains(head, "\r\n\t")) return IncomingRequest{.refusal = 400};
  RequestParser parser(limits_);
  error_code ec;
  parser.put(Buffer(head), ec);
  if (ec) return IncomingRequest{.refusal = parser.StatusOf(ec)};
  bytes_.erase(0, head.size());

  const base::Instant body_deadline = base::Now() + limits_.body_time;
  if (parser.waits_for_continue && !parser.is_done() && bytes_.empty() &&
      !channel_.Write("HTTP/1.1 100 Continue\r\n\r\n", body_deadline)) {
    return std::nullopt;
  }
  while (!parser.is_done()) {
    if (bytes_.empty() && !ReadMore(body_deadline)) return IncomingRequest{.refusal = 408};
    bytes_.erase(0, parser.put(Buffer(bytes_), ec));
    if (ec) return IncomingRequest{.refusal = parser.StatusOf(ec)};
  }
  parser.incoming.keep_alive &= parser.keep_alive();
  parser.incoming.request.body = std::move(parser.body);
  return std::move(parser.incoming);
}

std::string ResponseHead(const Response& response, bool keep_alive) {
  // With these headers, browsers neither guess the type nor cache the answer.
  std::string head = absl::StrCat("HTTP/1.1 ", response.status, " ", Reason(response.status),
                                  "\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\nContent-Type: ",
                                  response.content_type, "\r\nContent-Length: ", response.body.size(), "\r\n");
  for (const auto& [name, value] : response.headers) absl::StrAppend(&head, name, ": ", value, "\r\n");
  absl::StrAppend(&head, keep_alive ? "" : "Connection: close\r\n", "\r\n");
  return head;
}

std::string Refusal(int status) {
  Response response = {.status = status, .content_type = kPlainText, .body = absl::StrCat(Reason(status), "\n")};
  if (status == 405) response.headers = {{"Allow", "GET, HEAD, POST"}};
  return ResponseHead(response, false) + response.body;
}

absl::StatusOr<Answer> ReadAnswer(Channel& channel, size_t max_body_bytes, const Patience& patience) {
  AnswerParser parser(max_body_bytes);
  std::string pending;  // received but not yet parsed
  while (!parser.is_done()) {
    char part[kReadBytes];
    const base::Instant deadline = std::min(patience.deadline, base::Now() + patience.silence);
    const size_t got = channel.Read(part, sizeof(part), deadline);
    error_code ec;
    if (got == 0) {
      if (base::Now() >= deadline) return absl::DeadlineExceededError("the answer takes too long");
      if (!parser.got_some()) return absl::DataLossError("there is no answer");
      parser.put_eof(ec);
      if (ec) return absl::DataLossError("the answer is incomplete");
      break;
    }
    pending.append(part, got);
    // Beast 1.74 asserts that it gets the shortest end of a chunked body at once: 0 CR LF CR LF.
    if (parser.is_header_done() && parser.chunked() && pending.size() < 5) continue;
    pending.erase(0, parser.put(Buffer(pending), ec));
    if (ec == error::body_limit) {
      return absl::ResourceExhaustedError(absl::StrCat("the answer is longer than ", max_body_bytes, " bytes"));
    }
    // Beast bounds neither the line before a chunk nor the fields after the last one.
    if (ec == error::need_more && pending.size() > kMaxAnswerHeadBytes) ec = error::header_limit;
    if (ec && ec != error::need_more) {
      return absl::DataLossError(absl::StrCat("the answer is not valid HTTP: ", ec.message()));
    }
  }
  return Answer{.status = parser.status,
                .location = std::move(parser.location),
                .seconds_to_wait = parser.seconds_to_wait,
                .body = std::move(parser.body)};
}

}  // namespace heaptap::http
