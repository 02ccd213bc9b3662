// SPDX-License-Identifier: Apache-2.0
#include "userspace/formats/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <new>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace heaptap::formats {
namespace {

// The largest window; 16 selects the header of gzip.
constexpr int kWindowBits = MAX_WBITS + 16;

// Gives zlib the next piece of `data`: it counts in 32 bits.
void FeedPiece(z_stream& stream, absl::string_view& data) {
  const size_t piece = std::min<size_t>(data.size(), std::numeric_limits<uInt>::max());
  stream.next_in = reinterpret_cast<const Bytef*>(data.data());
  stream.avail_in = static_cast<uInt>(piece);
  data.remove_prefix(piece);
}

}  // namespace

std::string Gzip(absl::string_view data) {
  constexpr int kMemoryLevel = 8;  // zlib's default
  z_stream stream = {};
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kWindowBits, kMemoryLevel, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::bad_alloc();
  }
  std::string out;
  std::array<char, 1 << 16> buffer;
  int status = Z_OK;
  while (status != Z_STREAM_END) {
    if (stream.avail_in == 0) FeedPiece(stream, data);
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = buffer.size();
    status = deflate(&stream, data.empty() ? Z_FINISH : Z_NO_FLUSH);
    out.append(buffer.data(), buffer.size() - stream.avail_out);
  }
  deflateEnd(&stream);
  return out;
}

bool IsGzip(absl::string_view data) { return absl::StartsWith(data, "\x1f\x8b"); }

absl::StatusOr<std::string> Gunzip(absl::string_view data, size_t most) {
  z_stream stream = {};
  if (inflateInit2(&stream, kWindowBits) != Z_OK) throw std::bad_alloc();
  std::string out;
  std::array<char, 1 << 16> buffer;
  int status = Z_OK;
  while (status == Z_OK && out.size() <= most) {
    if (stream.avail_in == 0) FeedPiece(stream, data);
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = buffer.size();
    status = inflate(&stream, Z_NO_FLUSH);
    out.append(buffer.data(), buffer.size() - stream.avail_out);
  }
  const bool is_whole = status == Z_STREAM_END && stream.avail_in == 0 && data.empty();
  inflateEnd(&stream);
  if (out.size() > most) return absl::InvalidArgumentError(absl::StrCat("more than ", most, " bytes when unpacked"));
  if (status == Z_BUF_ERROR) return absl::InvalidArgumentError("the compressed file was cut off");
  if (!is_whole) return absl::InvalidArgumentError("the compressed file is damaged");
  return out;
}

}  // namespace heaptap::formats
