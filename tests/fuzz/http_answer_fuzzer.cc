// SPDX-License-Identifier: Apache-2.0
//
// The client's parser of HTTP answers on any bytes in any pieces: it keeps its bounds, and how the bytes are cut makes
// no difference to what is accepted.
#include <fuzzer/FuzzedDataProvider.h>

#include <cstdint>
#include <optional>
#include <string>

#include "tests/fuzz/check.h"
#include "tests/unit/memory_channel.h"
#include "userspace/http/wire.h"

namespace {

using heaptap::http::Answer;
using heaptap::http::MemoryChannel;
using heaptap::http::ReadAnswer;

constexpr size_t kMaxBody = 1000;

// The answer in `bytes`, given in pieces of `piece` bytes.
std::optional<Answer> Parse(absl::string_view bytes, size_t piece) {
  MemoryChannel channel(std::string(bytes), piece);
  absl::StatusOr<Answer> answer = ReadAnswer(channel, kMaxBody, {});
  return answer.ok() ? std::optional<Answer>(*std::move(answer)) : std::nullopt;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  FuzzedDataProvider data(bytes, size);
  const size_t piece = data.ConsumeIntegralInRange<size_t>(1, 64);
  std::string text = data.ConsumeRemainingBytesAsString();
  // Half of them get past the head.
  if (piece % 2 == 0) text.insert(0, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::optional<Answer> at_once = Parse(text, text.size());
  const std::optional<Answer> in_pieces = Parse(text, piece);
  if (in_pieces.has_value()) Check(in_pieces->body.size() <= kMaxBody && in_pieces->status >= 100);
  Check(in_pieces.has_value() == at_once.has_value());
  if (at_once.has_value()) Check(in_pieces->body == at_once->body);
  return 0;
}
