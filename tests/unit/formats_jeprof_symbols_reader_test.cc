// SPDX-License-Identifier: Apache-2.0
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/formats/heap_v2_reader.h"
#include "userspace/formats/jeprof_symbolized.h"
#include "userspace/formats/jeprof_symbols_reader.h"

namespace heaptap::formats {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> Names(const SymbolizedText& text, uint64_t address) {
  std::vector<std::string> names;
  const auto found = text.symbols.find(address);
  if (found == text.symbols.end()) return names;
  for (const profile::SourceFrame& frame : found->second) names.push_back(frame.function);
  return names;
}

TEST(JeprofSymbolsReaderTest, WhatWeWrite) {
  const profile::Profile profile = {.contexts = {{.frames = {0x1001, 0x2001}, .threads = {{.live = {1, 10, 1, 10}}}}}};
  const auto find = [](uint64_t address) -> std::vector<profile::SourceFrame> {
    if (address == 0x1000) return {{.function = "inner"}, {.function = "outer"}};
    return {{.function = "operator--"}};
  };
  const std::string written = JeprofSymbolized(profile, "/bin/x", find);
  const absl::StatusOr<SymbolizedText> text = SplitSymbolized(written, "file");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(Names(*text, 0x1000), std::vector<std::string>({"inner", "outer"}));
  EXPECT_EQ(Names(*text, 0x2000), std::vector<std::string>({"operator- - "}));
  const absl::StatusOr<profile::Profile> read = ReadHeapProfile(text->dump, "file");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->contexts[0].frames, profile.contexts[0].frames);
}

TEST(JeprofSymbolsReaderTest, OtherTextsHaveNoSymbols) {
  for (const char* other : {"", "heap_v2/1\n", "--- symbols", "x\n--- symbol\n"}) {
    const absl::StatusOr<SymbolizedText> text = SplitSymbolized(other, "file");
    ASSERT_TRUE(text.ok());
    EXPECT_EQ(text->dump, other);
    EXPECT_TRUE(text->symbols.empty());
  }
}

TEST(JeprofSymbolsReaderTest, BadInput) {
  const std::pair<const char*, const char*> kTexts[] = {
      {"--- symbol\n", "file: line 1: expected --- after the symbols"},
      {"--- symbol\nbinary=x\n0x1 f\n", "line 3: expected --- after the symbols"},
      {"--- symbol\n1 f\n---\n", "line 2: expected 0x<address> <name>, found 1 f"},
      {"--- symbol\n0xfffffffffffffffff f\n---\n", "line 2"},
      {"--- symbol\n0x1\n---\n", "line 2"},
      {"--- symbol\n---\nheap_v2/1\n", "line 3: expected --- heap, found heap_v2/1"},
  };
  for (const auto& [text, message] : kTexts) {
    const absl::Status status = SplitSymbolized(text, "file").status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
}

}  // namespace
}  // namespace heaptap::formats
