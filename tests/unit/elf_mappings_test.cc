// SPDX-License-Identifier: Apache-2.0
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/elf/mappings.h"

namespace heaptap::elf {
namespace {

using ::testing::ElementsAre;

Mapping Make(uint64_t start, uint64_t end, const std::string& path, uint64_t file_offset = 0) {
  return {.start = start, .end = end, .file_offset = file_offset, .inode = 1, .path = path};
}

// "START-END PATH+OFFSET" of each, in hexadecimal.
std::vector<std::string> Describe(const Mappings& mappings) {
  std::vector<std::string> lines;
  for (const Mapping& mapping : mappings) {
    lines.push_back(absl::StrCat(absl::Hex(mapping.start), "-", absl::Hex(mapping.end), " ", mapping.path, "+",
                                 absl::Hex(mapping.file_offset)));
  }
  return lines;
}

TEST(Mappings, StartsEmpty) {
  Mappings mappings;
  EXPECT_TRUE(mappings.empty());
  EXPECT_EQ(mappings.begin(), mappings.end());
  EXPECT_EQ(mappings.Find(0), nullptr);
}

TEST(Mappings, FindsByAddress) {
  Mappings mappings;
  ASSERT_TRUE(mappings.Add(Make(0x3000, 0x4000, "b")));
  ASSERT_TRUE(mappings.Add(Make(0x1000, 0x2000, "a")));
  EXPECT_EQ(mappings.Find(0xfff), nullptr);
  EXPECT_EQ(mappings.Find(0x1000)->path, "a");
  EXPECT_EQ(mappings.Find(0x1fff)->path, "a");
  EXPECT_EQ(mappings.Find(0x2000), nullptr);
  EXPECT_EQ(mappings.Find(0x3fff)->path, "b");
  EXPECT_EQ(mappings.Find(0x4000), nullptr);
  EXPECT_EQ(mappings.Find(~uint64_t{0}), nullptr);
}

TEST(Mappings, KeepsWhatWasUnmapped) {
  Mappings mappings;
  mappings.Add(Make(0x1000, 0x2000, "old"));
  mappings.Add(Make(0x2000, 0x3000, "new"));
  EXPECT_THAT(Describe(mappings), ElementsAre("1000-2000 old+0", "2000-3000 new+0"));
}

TEST(Mappings, NewOneReplacesTheSame) {
  Mappings mappings;
  mappings.Add(Make(0x1000, 0x2000, "old"));
  mappings.Add(Make(0x1000, 0x2000, "new", 0x7000));
  EXPECT_THAT(Describe(mappings), ElementsAre("1000-2000 new+7000"));
}

TEST(Mappings, NewOneSplitsALargerOne) {
  Mappings mappings;
  mappings.Add(Make(0x1000, 0x9000, "old", 0x100));
  mappings.Add(Make(0x3000, 0x4000, "new"));
  EXPECT_THAT(Describe(mappings), ElementsAre("1000-3000 old+100", "3000-4000 new+0", "4000-9000 old+3100"));
}

TEST(Mappings, NewOneCutsItsNeighbours) {
  Mappings mappings;
  mappings.Add(Make(0x1000, 0x3000, "a", 0x100));
  mappings.Add(Make(0x3000, 0x4000, "b"));
  mappings.Add(Make(0x5000, 0x7000, "c", 0x200));
  mappings.Add(Make(0x2000, 0x6000, "new"));
  EXPECT_THAT(Describe(mappings), ElementsAre("1000-2000 a+100", "2000-6000 new+0", "6000-7000 c+1200"));
}

TEST(Mappings, NewOneTakesTheFrontOrTheBack) {
  Mappings mappings;
  mappings.Add(Make(0x1000, 0x5000, "old"));
  mappings.Add(Make(0x1000, 0x2000, "front"));
  mappings.Add(Make(0x4000, 0x5000, "back"));
  EXPECT_THAT(Describe(mappings), ElementsAre("1000-2000 front+0", "2000-4000 old+1000", "4000-5000 back+0"));
}

TEST(Mappings, EndOfTheAddressSpace) {
  Mappings mappings;
  EXPECT_TRUE(mappings.Add(Make(0, ~uint64_t{0}, "all")));
  EXPECT_TRUE(mappings.Add(Make(0xffffffffff600000, 0xffffffffff601000, "[vsyscall]")));
  EXPECT_EQ(mappings.Find(0xffffffffff600fff)->path, "[vsyscall]");
  EXPECT_EQ(mappings.Find(0xffffffffff601000)->path, "all");
}

TEST(Mappings, RefusesWhatIsEmpty) {
  Mappings mappings;
  EXPECT_FALSE(mappings.Add(Make(0x1000, 0x1000, "empty")));
  EXPECT_FALSE(mappings.Add(Make(0x2000, 0x1000, "backwards")));
  EXPECT_TRUE(mappings.empty());
}

TEST(Mappings, HasABound) {
  Mappings mappings;
  size_t added = 0;
  for (uint64_t i = 0; i < 2 * kMaxMappings; ++i) added += mappings.Add(Make(i * 16, i * 16 + 8, "x"));
  EXPECT_EQ(added, mappings.size());
  EXPECT_LE(mappings.size(), kMaxMappings);
  EXPECT_GE(mappings.size(), kMaxMappings - 2);
}

TEST(Mappings, PathsHaveABound) {
  Mappings mappings;
  const std::string path(4096, 'x');
  const auto add = [&](uint64_t page) {
    return mappings.Add({.start = page * 4096, .end = (page + 1) * 4096, .inode = 1, .path = path});
  };
  uint64_t page = 1;
  while (add(page)) page++;
  EXPECT_EQ(page - 1, kMaxPathBytes / path.size());
  EXPECT_TRUE(mappings.Add({.start = page * 4096, .end = (page + 1) * 4096})) << "it has no path";
  // A mapping that replaces others frees their room.
  EXPECT_TRUE(mappings.Add({.start = 4096, .end = 3 * 4096}));
  EXPECT_TRUE(add(page + 1));
  EXPECT_TRUE(add(page + 2));
  EXPECT_FALSE(add(page + 3));
}

// Compared with the simplest model: one cell for each address.
TEST(Mappings, AgreesWithAnArray) {
  constexpr uint64_t kSize = 64;
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    Mappings mappings;
    std::vector<std::string> cells(kSize);
    for (int i = 0; i < 12; ++i) {
      uint64_t start = random() % kSize;
      uint64_t end = start + 1 + random() % (kSize - start);
      ASSERT_TRUE(mappings.Add(Make(start, end, absl::StrCat(i), 1000)));
      for (uint64_t cell = start; cell < end; ++cell) cells[cell] = absl::StrCat(i, "+", 1000 + cell - start);
    }
    for (uint64_t cell = 0; cell < kSize; ++cell) {
      const Mapping* found = mappings.Find(cell);
      std::string is = found ? absl::StrCat(found->path, "+", found->file_offset + (cell - found->start)) : "";
      ASSERT_EQ(is, cells[cell]) << "round " << round << " address " << cell;
    }
    uint64_t last_end = 0;
    for (const Mapping& mapping : mappings) {
      ASSERT_LE(last_end, mapping.start);
      ASSERT_LT(mapping.start, mapping.end);
      last_end = mapping.end;
    }
  }
}

TEST(Mappings, BuildIdOfTheSameFileOnly) {
  Mappings mappings;
  Mapping mapping = Make(0x1000, 0x2000, "/a", 0);
  mapping.inode = 7;
  ASSERT_TRUE(mappings.Add(mapping));
  const Mappings copy = mappings;
  Mapping other = mapping;
  other.inode = 8;
  EXPECT_FALSE(mappings.SetBuildId(other, "x")) << "of another file";
  EXPECT_FALSE(mappings.SetBuildId(Make(0x1800, 0x2000, "/a", 0), "x"));
  EXPECT_TRUE(mappings.SetBuildId(mapping, "x"));
  EXPECT_EQ(mappings.Find(0x1000)->build_id, "x");
  EXPECT_FALSE(mappings.SetBuildId(mapping, "y")) << "it has one";
  EXPECT_EQ(copy.Find(0x1000)->build_id, "") << "a copy stays as it was";
}

TEST(BuildIdOfHex, OnlyDigits) {
  EXPECT_EQ(BuildIdOfHex("00fFa1"), std::string("\0\xff\xa1", 3));
  EXPECT_EQ(BuildIdOfHex(std::string(2 * kMaxBuildIdBytes, '1')), std::string(kMaxBuildIdBytes, '\x11'));
  for (const std::string& text : {std::string(), std::string("1"), std::string("1 "), std::string("0x11"),
                                  std::string("-1"), std::string(2 * kMaxBuildIdBytes + 2, '1')}) {
    EXPECT_EQ(BuildIdOfHex(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace heaptap::elf
