// SPDX-License-Identifier: Apache-2.0
//
// For tests: the other end of a connection, in memory.
#ifndef HEAPTAP_TESTS_UNIT_MEMORY_CHANNEL_H_
#define HEAPTAP_TESTS_UNIT_MEMORY_CHANNEL_H_

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "userspace/base/clock.h"
#include "userspace/http/channel.h"

namespace heaptap::http {

// Sends `input` in pieces of `piece` bytes, and then nothing.
class MemoryChannel : public Channel {
 public:
  explicit MemoryChannel(std::string input, size_t piece = std::string::npos)
      : input_(std::move(input)), piece_(piece) {}

  size_t Read(char* to, size_t size, base::Instant) override {
    const size_t count = input_.copy(to, std::min(size, piece_), begin_);
    begin_ += count;
    return count;
  }
  bool Write(absl::string_view bytes, base::Instant) override {
    output.append(bytes.data(), bytes.size());
    return true;
  }
  bool Sleep(absl::Duration) override { return false; }

  std::string output;

 private:
  const std::string input_;
  const size_t piece_;
  size_t begin_ = 0;  // of the next piece
};

}  // namespace heaptap::http

#endif  // HEAPTAP_TESTS_UNIT_MEMORY_CHANNEL_H_
