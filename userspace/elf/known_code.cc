// SPDX-License-Identifier: Apache-2.0
#include "userspace/elf/known_code.h"

#include <elf.h>

#include <algorithm>

namespace heaptap::elf {
namespace {

// musl has 600 KiB of code. A search of that much takes a fifth of a millisecond.
constexpr uint64_t kMaxSearched = 2 << 20;
// A libc has one piece, or two.
constexpr size_t kMaxPieces = 8;

// xor %rdi, %rdi, and the first byte of a call. Four more bytes of the call and a hlt follow.
constexpr absl::string_view kExit("\x48\x31\xff\xe8", 4);
constexpr size_t kExitBytes = 9;
constexpr char kHalt = '\xf4';

}  // namespace

std::vector<KnownCode> FindKnownCode(const File& file) {
  std::vector<KnownCode> found;
  uint64_t left = kMaxSearched;
  for (const Segment& segment : file.segments()) {
    if (segment.type != PT_LOAD || !(segment.flags & PF_X)) continue;
    const auto bytes = file.Read(segment.offset, std::min(segment.file_size, left), kMaxSearched, "code");
    if (!bytes.ok()) continue;
    left -= bytes->size();
    const absl::string_view code = *bytes;
    const auto add = [&](KnownCode::Kind kind, size_t at, size_t size) {
      if (found.size() < kMaxPieces) found.push_back({kind, segment.address + at, segment.address + at + size});
    };
    for (size_t at = 0; (at = code.find(kSignalReturn, at)) != absl::string_view::npos; at++) {
      add(KnownCode::kSignal, at, kSignalReturn.size());
    }
    for (size_t at = 0; (at = code.find(kExit, at)) != absl::string_view::npos; at++) {
      if (at + kExitBytes <= code.size() && code[at + kExitBytes - 1] == kHalt) add(KnownCode::kEnd, at, kExitBytes);
    }
  }
  return found;
}

}  // namespace heaptap::elf
