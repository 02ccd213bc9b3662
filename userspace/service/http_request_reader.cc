// SPDX-License-Identifier: Apache-2.0
#include "userspace/service/http_request_reader.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"

namespace heaptap::service {
namespace {

constexpr char kHeadEnd[] = "\r\n\r\n";
// The HTTP library's own limit.
constexpr size_t kMaxTargetBytes = 8192;

bool IsPrintable(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    auto byte = static_cast<unsigned char>(c);
    return byte == '\t' || (byte >= 0x20 && byte != 0x7f);
  });
}

// Characters of header names.
bool IsToken(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(c) || absl::StrContains("!#$%&'*+-.^_`|~", absl::string_view(&c, 1));
  });
}

int ParseLine(absl::string_view line, RequestHead& head) {
  const std::vector<absl::string_view> parts = absl::StrSplit(line, ' ');
  if (parts.size() != 3 || !IsToken(parts[0])) return 400;
  if (parts[2] != "HTTP/1.1" && parts[2] != "HTTP/1.0") return absl::StartsWith(parts[2], "HTTP/") ? 505 : 400;
  if (parts[0] != "GET" && parts[0] != "HEAD" && parts[0] != "POST") return 405;
  if (!absl::StartsWith(parts[1], "/")) return 400;
  if (parts[1].size() > kMaxTargetBytes) return 414;
  head.line = std::string(line);
  head.keep_alive = parts[2] == "HTTP/1.1";
  return 0;
}

// Accepts only digits, so that no other parser can read another number.
bool ParseLength(absl::string_view text, size_t& length) {
  constexpr size_t kMaxDigits = 18;
  return !text.empty() && text.size() <= kMaxDigits && std::all_of(text.begin(), text.end(), absl::ascii_isdigit) &&
         absl::SimpleAtoi(text, &length);
}

class HeaderParser {
 public:
  explicit HeaderParser(RequestHead& head) : head_(head) {}

  int Parse(absl::string_view line) {
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos || !IsToken(line.substr(0, colon))) return 400;
    const absl::string_view name = line.substr(0, colon);
    const absl::string_view value = absl::StripAsciiWhitespace(line.substr(colon + 1));
    if (absl::EqualsIgnoreCase(name, "Content-Length")) {
      return !std::exchange(has_length_, true) && ParseLength(value, head_.body_bytes) ? 0 : 400;
    }
    if (absl::EqualsIgnoreCase(name, "Transfer-Encoding")) return 501;
    if (absl::EqualsIgnoreCase(name, "Content-Encoding")) return absl::EqualsIgnoreCase(value, "identity") ? 0 : 415;
    if (absl::EqualsIgnoreCase(name, "Expect")) {
      head_.waits_for_continue = true;
      return absl::EqualsIgnoreCase(value, "100-continue") ? 0 : 417;
    }
    if (absl::EqualsIgnoreCase(name, "Connection")) {
      if (absl::StrContains(absl::AsciiStrToLower(value), "close")) head_.keep_alive = false;
    } else if (absl::EqualsIgnoreCase(name, "Host")) {
      if (std::exchange(has_host_, true)) return 400;
      head_.host = std::string(value);
    } else if (absl::EqualsIgnoreCase(name, "Origin")) {
      head_.is_cross_site = true;
    } else if (absl::EqualsIgnoreCase(name, "Sec-Fetch-Site")) {
      head_.is_cross_site |= value != "same-origin" && value != "none";
    }
    return 0;
  }

 private:
  RequestHead& head_;
  bool has_length_ = false;
  bool has_host_ = false;
};

}  // namespace

int ParseHead(absl::string_view text, const HttpLimits& limits, RequestHead& head) {
  if (text.size() > limits.header_bytes) return 431;
  if (!absl::ConsumeSuffix(&text, kHeadEnd)) return 400;
  HeaderParser headers(head);
  bool is_first = true;
  for (absl::string_view line : absl::StrSplit(text, "\r\n")) {
    if (!IsPrintable(line)) return 400;
    const int refusal = is_first ? ParseLine(line, head) : headers.Parse(line);
    if (refusal != 0) return refusal;
    is_first = false;
  }
  return head.body_bytes > limits.body_bytes ? 413 : 0;
}

bool HttpRequestReader::ReadMore(absl::Time deadline) {
  char part[16 << 10];
  const size_t got = channel_.Read(part, sizeof(part), deadline);
  bytes_.append(part, got);
  return got != 0;
}

std::optional<IncomingRequest> HttpRequestReader::Next() {
  if (bytes_.empty() && !ReadMore(absl::Now() + limits_.idle)) return std::nullopt;
  IncomingRequest request;
  const absl::Time head_deadline = absl::Now() + limits_.header_time;
  size_t searched = 0;
  size_t end;
  while ((end = bytes_.find(kHeadEnd, searched)) == std::string::npos) {
    searched = bytes_.size() - std::min<size_t>(bytes_.size(), sizeof(kHeadEnd) - 2);
    if (bytes_.size() > limits_.header_bytes) return IncomingRequest{.refusal = 431};
    if (!ReadMore(head_deadline)) return IncomingRequest{.refusal = 408};
  }
  end += sizeof(kHeadEnd) - 1;
  request.refusal = ParseHead(absl::string_view(bytes_).substr(0, end), limits_, request.head);
  if (request.refusal != 0) return request;
  bytes_.erase(0, end);

  const absl::Time body_deadline = absl::Now() + limits_.body_time;
  if (request.head.waits_for_continue && bytes_.size() < request.head.body_bytes &&
      !channel_.Write("HTTP/1.1 100 Continue\r\n\r\n", body_deadline)) {
    return std::nullopt;
  }
  while (bytes_.size() < request.head.body_bytes) {
    if (!ReadMore(body_deadline)) return IncomingRequest{.refusal = 408};
  }
  request.body = bytes_.substr(0, request.head.body_bytes);
  bytes_.erase(0, request.head.body_bytes);
  return request;
}

}  // namespace heaptap::service
