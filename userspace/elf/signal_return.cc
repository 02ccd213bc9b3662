// SPDX-License-Identifier: Apache-2.0
#include "userspace/elf/signal_return.h"

#include <elf.h>

#include <algorithm>

namespace heaptap::elf {
namespace {

// musl has 600 KiB of code. A search of so much takes a fifth of a millisecond.
constexpr uint64_t kMaxSearched = 2 << 20;
// A libc has one place, or two.
constexpr size_t kMaxPlaces = 8;

}  // namespace

std::vector<uint64_t> FindSignalReturns(const File& file) {
  std::vector<uint64_t> found;
  uint64_t left = kMaxSearched;
  for (const Segment& segment : file.segments()) {
    if (segment.type != PT_LOAD || !(segment.flags & PF_X)) continue;
    const auto bytes = file.Read(segment.offset, std::min(segment.file_size, left), kMaxSearched, "code");
    if (!bytes.ok()) continue;
    left -= bytes->size();
    const absl::string_view code = *bytes;
    for (size_t at = 0; (at = code.find(kSignalReturn, at)) != absl::string_view::npos; at++) {
      if (found.size() == kMaxPlaces) return found;
      found.push_back(segment.address + at);
    }
  }
  return found;
}

}  // namespace heaptap::elf
