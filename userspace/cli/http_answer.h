// SPDX-License-Identifier: Apache-2.0
//
// Parses an HTTP/1.1 answer (RFC 9112) on a connection with one request. The request asks the server to close the
// connection, so the answer ends at its stated length or with the connection.
//
// The server is not trusted, and cpp-httplib's client (0.11) limits neither the header nor the total time.
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

struct ReceivedAnswer {
  int status = 0;  // 100 to 599
  std::string body = {};
};

// Parses an answer from pieces of any size. Thread-compatible.
class AnswerParser {
 public:
  explicit AnswerParser(size_t max_body_bytes) : max_body_bytes_(max_body_bytes) {}

  // Parses the next bytes. True: the answer is complete. DataLoss: not HTTP. ResourceExhausted: the body is too long.
  absl::StatusOr<bool> Add(absl::string_view bytes);
  // The connection has ended. DataLoss: the answer is incomplete.
  absl::Status End();

  ReceivedAnswer Take() && { return std::move(answer_); }

 private:
  absl::Status ReadHead(absl::string_view head);
  absl::StatusOr<bool> TakeChunks();
  absl::Status CheckSize(size_t body_bytes) const;

  const size_t max_body_bytes_;
  std::string pending_;  // received but not yet parsed
  bool has_head_ = false;
  bool is_chunked_ = false;
  bool is_whole_ = false;
  std::optional<size_t> length_;
  ReceivedAnswer answer_;
};

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_HTTP_ANSWER_H_
