// SPDX-License-Identifier: Apache-2.0
//
// The client's half of HTTP/1.1 (RFC 9112), as much of it as one request on one connection takes: the request asks for
// the connection to be closed, so the answer ends where it says or where the connection does.
//
// Written out here because the answering side may be anything: cpp-httplib's client (0.11) takes any number of header
// lines of any length, and as much time as a server that sends a byte now and then.
#ifndef HEAPTAP_USERSPACE_CLI_HTTP_ANSWER_H_
#define HEAPTAP_USERSPACE_CLI_HTTP_ANSWER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace heaptap::cli {

inline constexpr size_t kMaxHeadBytes = 16 << 10;

struct HttpAnswer {
  int status = 0;  // 100 to 599
  std::string body = {};
};

// Takes an answer as it comes, in pieces of any size. Thread-compatible.
class AnswerParser {
 public:
  explicit AnswerParser(size_t max_body_bytes) : max_body_bytes_(max_body_bytes) {}

  // Takes the next bytes. True: the answer is whole. DataLoss: this is no HTTP; ResourceExhausted: the body is longer
  // than allowed.
  absl::StatusOr<bool> Add(absl::string_view bytes);
  // The connection has ended. DataLoss: the answer is not whole.
  absl::Status End();

  HttpAnswer Take() && { return std::move(answer_); }

 private:
  absl::Status ReadHead(absl::string_view head);
  absl::StatusOr<bool> TakeChunks();
  absl::Status CheckSize(size_t body_bytes) const;

  const size_t max_body_bytes_;
  std::string pending_;  // what came and is not understood yet; of a body with a known end, nothing
  bool has_head_ = false;
  bool is_chunked_ = false;
  bool is_whole_ = false;
  std::optional<size_t> length_;
  HttpAnswer answer_;
};

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_HTTP_ANSWER_H_
