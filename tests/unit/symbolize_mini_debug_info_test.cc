// SPDX-License-Identifier: Apache-2.0
//
// Tests mini debug information that is damaged, cut off, or larger than its bounds.
#include <elf.h>
#include <lzma.h>

#include <string>

#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/elf_image.h"
#include "userspace/symbolize/mini_debug_info.h"

namespace heaptap::symbolize {
namespace {

using ::testing::HasSubstr;

// As xz(1) compresses.
std::string Xz(absl::string_view bytes, uint32_t dictionary_bytes = 1 << 20) {
  lzma_options_lzma options;
  EXPECT_FALSE(lzma_lzma_preset(&options, 0));
  options.dict_size = dictionary_bytes;
  const lzma_filter filters[] = {{LZMA_FILTER_LZMA2, &options}, {LZMA_VLI_UNKNOWN, nullptr}};
  std::string packed(lzma_stream_buffer_bound(bytes.size()), '\0');
  size_t size = 0;
  EXPECT_EQ(lzma_stream_buffer_encode(const_cast<lzma_filter*>(filters), LZMA_CHECK_CRC64, nullptr,
                                      reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(),
                                      reinterpret_cast<uint8_t*>(packed.data()), &size, packed.size()),
            LZMA_OK);
  packed.resize(size);
  return packed;
}

absl::StatusOr<std::string> ReadFrom(const elf::ElfImage& image) {
  const base::FileDescriptor fd = elf::FileWith(image.Bytes());
  return ReadMiniDebugInfo(*elf::File::Open(fd.get()));
}

absl::StatusOr<std::string> Read(const std::string& section) {
  elf::ElfImage image;
  image.AddSection(".gnu_debugdata", SHT_PROGBITS, section);
  return ReadFrom(image);
}

TEST(MiniDebugInfo, IsUnpacked) {
  const std::string text(100000, 'x');
  EXPECT_EQ(*Read(Xz(text)), text);
  EXPECT_EQ(*Read(Xz(text) + "padding"), text);
  EXPECT_EQ(*Read(Xz("")), "");
}

TEST(MiniDebugInfo, IsMissing) {
  EXPECT_TRUE(absl::IsNotFound(ReadFrom(elf::ElfImage()).status()));
  elf::ElfImage image;
  image.AddSection(".gnu_debugdata", SHT_NOBITS, "");
  EXPECT_TRUE(absl::IsNotFound(ReadFrom(image).status()));
}

TEST(MiniDebugInfo, IsDamaged) {
  const std::string packed = Xz("some text that is long enough for a block of its own");
  for (size_t size = 0; size < packed.size(); size++) {
    EXPECT_TRUE(absl::IsInvalidArgument(Read(packed.substr(0, size)).status())) << size;
  }
  for (size_t at = 0; at < packed.size(); at++) {
    std::string bad = packed;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    EXPECT_FALSE(Read(bad).ok()) << at;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(Read("not of xz").status()));
}

TEST(MiniDebugInfo, IsBounded) {
  EXPECT_EQ(Read(Xz(std::string(kMaxUnpackedBytes, 'x')))->size(), kMaxUnpackedBytes);
  EXPECT_THAT(Read(Xz(std::string(kMaxUnpackedBytes + 1, 'x'))).status().message(), HasSubstr("when unpacked"));
  EXPECT_THAT(Read(std::string(kMaxPackedBytes + 1, 'x')).status().message(), HasSubstr("more than the limit"));
  EXPECT_TRUE(absl::IsResourceExhausted(Read(Xz("text", 512 << 20)).status()));
}

}  // namespace
}  // namespace heaptap::symbolize
