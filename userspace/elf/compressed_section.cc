// SPDX-License-Identifier: Apache-2.0
#include "userspace/elf/compressed_section.h"

#include <elf.h>
#include <string.h>
#include <zlib.h>

#include "absl/status/status.h"

namespace heaptap::elf {
namespace {

// zlib expands no input by more than this factor (zlib's technical details).
constexpr uint64_t kMostExpansion = 1032;

}  // namespace

absl::StatusOr<std::string> Uncompressed(absl::string_view section, uint64_t limit) {
  const absl::Status broken = absl::InvalidArgumentError("a broken compressed section");
  Elf64_Chdr header;
  if (section.size() < sizeof(header)) return broken;
  memcpy(&header, section.data(), sizeof(header));
  if (header.ch_type != ELFCOMPRESS_ZLIB) return absl::UnimplementedError("not compressed by zlib");
  section.remove_prefix(sizeof(header));
  if (header.ch_size > limit || header.ch_size / kMostExpansion > section.size()) return broken;
  std::string bytes(header.ch_size, '\0');
  uLongf size = bytes.size();
  const int error = uncompress(reinterpret_cast<Bytef*>(bytes.data()), &size,
                               reinterpret_cast<const Bytef*>(section.data()), section.size());
  if (error != Z_OK || size != bytes.size()) return broken;
  return bytes;
}

}  // namespace heaptap::elf
