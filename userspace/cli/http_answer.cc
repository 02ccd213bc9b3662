// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/http_answer.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace heaptap::cli {
namespace {

constexpr absl::string_view kLineEnd = "\r\n";
constexpr absl::string_view kHeadEnd = "\r\n\r\n";
// The line before a chunk: its size in hexadecimal, and extensions, which are not in use.
constexpr size_t kMaxChunkLineBytes = 256;

absl::Status NoHttp(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("the answer is not valid HTTP: ", what));
}

}  // namespace

absl::Status AnswerParser::CheckSize(size_t body_bytes) const {
  if (body_bytes <= max_body_bytes_) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("the answer is longer than ", max_body_bytes_, " bytes"));
}

absl::Status AnswerParser::ReadHead(absl::string_view head) {
  const std::vector<absl::string_view> lines = absl::StrSplit(head, kLineEnd);
  absl::string_view first = lines[0];
  if (!absl::ConsumePrefix(&first, "HTTP/1.1 ") && !absl::ConsumePrefix(&first, "HTTP/1.0 ")) {
    return NoHttp("it does not begin with HTTP/1.1");
  }
  const absl::string_view number = first.substr(0, 3);
  if (number.size() != 3 || !absl::SimpleAtoi(number, &answer_.status) || answer_.status < 100 ||
      answer_.status > 599) {
    return NoHttp("it has no status");
  }
  for (size_t i = 1; i < lines.size(); i++) {
    const std::pair<absl::string_view, absl::string_view> field = absl::StrSplit(lines[i], absl::MaxSplits(':', 1));
    const absl::string_view value = absl::StripAsciiWhitespace(field.second);
    if (absl::EqualsIgnoreCase(field.first, "Content-Length")) {
      uint64_t length = 0;
      if (!absl::SimpleAtoi(value, &length) || length_.value_or(length) != length) {
        return NoHttp("its Content-Length is not a number");
      }
      length_ = length;
    } else if (absl::EqualsIgnoreCase(field.first, "Transfer-Encoding")) {
      if (!absl::EqualsIgnoreCase(value, "chunked")) return NoHttp("its Transfer-Encoding is not supported");
      is_chunked_ = true;
    }
  }
  // Chunks take precedence (RFC 9112, 6.3).
  if (is_chunked_) length_.reset();
  return CheckSize(length_.value_or(0));
}

absl::StatusOr<bool> AnswerParser::Add(absl::string_view bytes) {
  if (!has_head_) {
    absl::StrAppend(&pending_, bytes);
    const size_t end = absl::string_view(pending_).find(kHeadEnd);
    if (std::min(end, pending_.size()) > kMaxHeadBytes) return NoHttp("its header is too long");
    if (end == std::string::npos) return false;
    has_head_ = true;
    const std::string head = pending_.substr(0, end);
    const std::string rest = pending_.substr(end + kHeadEnd.size());
    pending_.clear();
    if (absl::Status status = ReadHead(head); !status.ok()) return status;
    return Add(rest);
  }
  if (is_chunked_) {
    absl::StrAppend(&pending_, bytes);
    return TakeChunks();
  }
  absl::StrAppend(&answer_.body, bytes);
  if (absl::Status status = CheckSize(answer_.body.size()); !status.ok()) return status;
  if (length_.has_value() && answer_.body.size() > *length_) return NoHttp("it is longer than its Content-Length");
  is_whole_ = length_.has_value() && answer_.body.size() == *length_;
  return is_whole_;
}

absl::StatusOr<bool> AnswerParser::TakeChunks() {
  absl::string_view rest = pending_;
  for (;;) {
    const size_t line_end = rest.substr(0, kMaxChunkLineBytes).find(kLineEnd);
    if (line_end == absl::string_view::npos) {
      if (rest.size() >= kMaxChunkLineBytes) return NoHttp("a chunk has no size");
      break;
    }
    uint64_t size = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + line_end, size, 16);
    const bool ends_well = end == rest.data() + line_end || *end == ';' || *end == ' ';
    if (error != std::errc() || !ends_well) return NoHttp("a chunk has no size");
    if (size == 0) {
      // Trailers are ignored.
      is_whole_ = true;
      return true;
    }
    // Check the size alone first, because the sum could wrap around.
    if (absl::Status status = CheckSize(size); !status.ok()) return status;
    if (absl::Status status = CheckSize(answer_.body.size() + size); !status.ok()) return status;
    const size_t begin = line_end + kLineEnd.size();
    if (rest.size() < begin + size + kLineEnd.size()) break;
    if (rest.substr(begin + size, kLineEnd.size()) != kLineEnd) return NoHttp("a chunk has no end");
    absl::StrAppend(&answer_.body, rest.substr(begin, size));
    rest.remove_prefix(begin + size + kLineEnd.size());
  }
  pending_.erase(0, pending_.size() - rest.size());
  return false;
}

absl::Status AnswerParser::End() {
  // Without a length or chunks, the answer ends with the connection.
  if (has_head_ && !is_chunked_ && !length_.has_value()) is_whole_ = true;
  if (is_whole_) return absl::OkStatus();
  return absl::DataLossError(pending_.empty() && !has_head_ ? "there is no answer" : "the answer is incomplete");
}

}  // namespace heaptap::cli
