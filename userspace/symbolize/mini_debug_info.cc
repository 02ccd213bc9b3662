// SPDX-License-Identifier: Apache-2.0
#include "userspace/symbolize/mini_debug_info.h"

#include <elf.h>
#include <lzma.h>

#include <array>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace heaptap::symbolize {
namespace {

constexpr char kSection[] = ".gnu_debugdata";

// xz -9 takes 65 MiB, less options as little as 1 MiB.
constexpr uint64_t kMostDecoderMemory = 128 << 20;

absl::StatusOr<std::string> Unpack(absl::string_view packed) {
  lzma_stream stream = LZMA_STREAM_INIT;
  if (lzma_stream_decoder(&stream, kMostDecoderMemory, /*flags=*/0) != LZMA_OK) {
    return absl::ResourceExhaustedError(absl::StrCat(kSection, ": no memory"));
  }
  const absl::Cleanup end = [&] { lzma_end(&stream); };
  stream.next_in = reinterpret_cast<const uint8_t*>(packed.data());
  stream.avail_in = packed.size();
  std::string unpacked;
  std::array<char, 1 << 16> buffer;
  lzma_ret status = LZMA_OK;
  while (status == LZMA_OK && unpacked.size() <= kMaxUnpackedBytes) {
    stream.next_out = reinterpret_cast<uint8_t*>(buffer.data());
    stream.avail_out = buffer.size();
    status = lzma_code(&stream, LZMA_FINISH);
    unpacked.append(buffer.data(), buffer.size() - stream.avail_out);
  }
  if (unpacked.size() > kMaxUnpackedBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(kSection, ": more than the limit of ", kMaxUnpackedBytes, " bytes when unpacked"));
  }
  if (status == LZMA_MEM_ERROR || status == LZMA_MEMLIMIT_ERROR) {
    return absl::ResourceExhaustedError(absl::StrCat(kSection, ": unpacking takes too much memory"));
  }
  // Bytes after the end are padding.
  if (status != LZMA_STREAM_END) return absl::InvalidArgumentError(absl::StrCat(kSection, ": damaged or cut off"));
  return unpacked;
}

}  // namespace

absl::StatusOr<std::string> ReadMiniDebugInfo(const elf::File& file) {
  const elf::Section* section = file.FindSection(kSection);
  if (section == nullptr || section->type == SHT_NOBITS) {
    return absl::NotFoundError(absl::StrCat("no ", kSection));
  }
  const absl::StatusOr<std::string> packed = file.Read(section->offset, section->size, kMaxPackedBytes, kSection);
  if (!packed.ok()) return packed.status();
  return Unpack(*packed);
}

}  // namespace heaptap::symbolize
