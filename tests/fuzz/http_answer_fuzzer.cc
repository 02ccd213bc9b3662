// SPDX-License-Identifier: Apache-2.0
//
// The client's parser of HTTP answers on any bytes in any pieces: it keeps its bounds, and how the bytes are cut makes
// no difference to what is accepted.
#include <fuzzer/FuzzedDataProvider.h>

#include <cstdint>
#include <optional>
#include <string>

#include "tests/fuzz/check.h"
#include "userspace/cli/http_answer.h"

namespace {

using heaptap::cli::AnswerParser;
using heaptap::cli::ReceivedAnswer;

constexpr size_t kMaxBody = 1000;

// The answer in `bytes`, given in pieces of `piece` bytes.
std::optional<ReceivedAnswer> Parse(absl::string_view bytes, size_t piece) {
  AnswerParser parser(kMaxBody);
  for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size()))) {
    const absl::StatusOr<bool> whole = parser.Add(bytes.substr(0, piece));
    if (!whole.ok()) return std::nullopt;
    if (*whole) return std::move(parser).Take();
  }
  if (!parser.End().ok()) return std::nullopt;
  return std::move(parser).Take();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  FuzzedDataProvider data(bytes, size);
  const size_t piece = data.ConsumeIntegralInRange<size_t>(1, 64);
  std::string text = data.ConsumeRemainingBytesAsString();
  // Half of them get past the head.
  if (piece % 2 == 0) text.insert(0, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::optional<ReceivedAnswer> at_once = Parse(text, text.size());
  const std::optional<ReceivedAnswer> in_pieces = Parse(text, piece);
  if (in_pieces.has_value()) Check(in_pieces->body.size() <= kMaxBody && in_pieces->status >= 100);
  // What comes after the end of an answer is not asked for, and an error if it comes with it.
  if (at_once.has_value()) Check(in_pieces.has_value() && in_pieces->body == at_once->body);
  return 0;
}
