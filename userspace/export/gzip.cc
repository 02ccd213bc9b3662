// SPDX-License-Identifier: Apache-2.0
#include "userspace/export/gzip.h"

// Makes zlib declare its input const.
#define ZLIB_CONST
#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <new>

namespace heaptap::exporter {

std::string Gzip(absl::string_view data) {
  // The largest window; 16 selects the header of gzip.
  constexpr int kWindowBits = MAX_WBITS + 16;
  constexpr int kMemoryLevel = 8;  // zlib's default
  z_stream stream = {};
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kWindowBits, kMemoryLevel, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::bad_alloc();
  }
  std::string out;
  std::array<char, 1 << 16> buffer;
  int status = Z_OK;
  while (status != Z_STREAM_END) {
    if (stream.avail_in == 0) {
      // zlib counts in 32 bits.
      const size_t piece = std::min<size_t>(data.size(), std::numeric_limits<uInt>::max());
      stream.next_in = reinterpret_cast<const Bytef*>(data.data());
      stream.avail_in = static_cast<uInt>(piece);
      data.remove_prefix(piece);
    }
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = buffer.size();
    status = deflate(&stream, data.empty() ? Z_FINISH : Z_NO_FLUSH);
    out.append(buffer.data(), buffer.size() - stream.avail_out);
  }
  deflateEnd(&stream);
  return out;
}

}  // namespace heaptap::exporter
