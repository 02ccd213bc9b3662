// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>
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

// --- former mappings -------------------------------------------------------------------------------------------------

Mapping OfFile(uint64_t inode, uint64_t start, uint64_t end, uint64_t file_offset = 0) {
  return {.start = start,
          .end = end,
          .file_offset = file_offset,
          .inode = inode,
          .path = absl::StrCat("/plugin", inode),
          .build_id = absl::StrCat("id", inode)};
}

WhenMapped At(uint64_t time) { return {.since = time, .time = time}; }

// The path of the code at a return address of a stack of that time, and its place in the file.
std::string PathAt(const Mappings& mappings, uint64_t address, std::optional<uint64_t> time) {
  const uint64_t place = mappings.Place(address, time);
  const Mapping* mapping = mappings.Find(place - 1);
  return mapping == nullptr
             ? "none"
             : absl::StrCat(mapping->path, "+", absl::Hex(place - mapping->start + mapping->file_offset));
}

TEST(FormerMappings, AStackIsOfTheCodeOfItsTime) {
  Mappings mappings;
  mappings.Add(OfFile(1, 0x10000, 0x14000), At(10));
  mappings.Add(OfFile(2, 0x12000, 0x16000, 0x5000), At(20));  // takes half of it
  mappings.Add(OfFile(3, 0x13000, 0x14000), At(30));
  mappings.Add(OfFile(1, 0x13000, 0x14000, 0x3000), At(40));  // the first file is back
  for (const uint64_t time : {5, 10, 19}) EXPECT_EQ(PathAt(mappings, 0x13010, time), "/plugin1+3010");
  for (const uint64_t time : {20, 29}) EXPECT_EQ(PathAt(mappings, 0x13010, time), "/plugin2+6010");
  EXPECT_EQ(PathAt(mappings, 0x13010, 39), "/plugin3+10");
  EXPECT_EQ(PathAt(mappings, 0x13010, 40), "/plugin1+3010");
  for (const uint64_t time : {5, 40}) EXPECT_EQ(PathAt(mappings, 0x11010, time), "/plugin1+1010") << "in place";
  EXPECT_EQ(mappings.Place(0x11010, 5), 0x11010u);
  EXPECT_EQ(PathAt(mappings, 0x12010, 19), "/plugin1+2010");
  EXPECT_EQ(PathAt(mappings, 0x15010, 19), "/plugin2+8010") << "nothing was there before";
  // A return address may be the end of its mapping.
  EXPECT_EQ(PathAt(mappings, 0x13000, 15), "/plugin1+3000");
  EXPECT_EQ(PathAt(mappings, 0x13000, 25), "/plugin2+6000");
  EXPECT_GE(mappings.Place(0x13010, 5), kFormerBegin);
  EXPECT_EQ(mappings.Find(mappings.Place(0x13010, 5))->build_id, "id1");
  EXPECT_EQ(mappings.All().size(), mappings.size());
}

TEST(FormerMappings, OfAnUncertainTimeAreUnknown) {
  Mappings mappings;
  mappings.Add(OfFile(1, 0x10000, 0x14000), At(10));
  mappings.Add(OfFile(2, 0x12000, 0x14000), At(20));
  EXPECT_EQ(PathAt(mappings, 0x13010, std::nullopt), "none");
  EXPECT_EQ(PathAt(mappings, 0x11010, std::nullopt), "/plugin1+1010");
  EXPECT_NE(mappings.Place(0x13010, std::nullopt), mappings.Place(0x13011, std::nullopt));
}

// The same file at the same place, code without a file in place of such code, and what was mapped before all stacks.
TEST(FormerMappings, ThoseThatMakeNoDifference) {
  Mappings mappings;
  mappings.Add(OfFile(1, 0x10000, 0x14000, 0x1000), At(10));
  mappings.Add(OfFile(1, 0x11000, 0x12000, 0x2000), At(20));
  mappings.Add({.start = 0x20000, .end = 0x30000}, At(30));
  mappings.Add({.start = 0x28000, .end = 0x38000, .file_offset = 7}, At(40));
  mappings.Add(OfFile(2, 0x10000, 0x14000));
  EXPECT_EQ(mappings.former().size(), 0u);
  mappings.Add(OfFile(2, 0x10000, 0x14000, 0x1000), At(50));
  EXPECT_EQ(PathAt(mappings, 0x10010, 45), "/plugin2+10") << "another part of the file";
  mappings.Add(OfFile(3, 0x28000, 0x38000), At(60));
  EXPECT_EQ(PathAt(mappings, 0x28010, 55), "+17") << "code without a file";
}

// Two files that come and go have a place each.
TEST(FormerMappings, ComeAndGo) {
  Mappings mappings;
  for (uint64_t time = 1; time <= 100; time++) mappings.Add(OfFile(1 + time % 2, 0x10000, 0x11000), At(time));
  for (uint64_t time = 1; time <= 100; time++) {
    EXPECT_EQ(PathAt(mappings, 0x10010, time), absl::StrCat("/plugin", 1 + time % 2, "+10"));
  }
  EXPECT_EQ(mappings.All().size(), 3u);
  Mappings other;
  other.Add(OfFile(1, 0x10000, 0x11000), At(1));
  other.Add(OfFile(2, 0x10000, 0x11000), At(2));
  other.Add(OfFile(1, 0x10000, 0x11000, 0x1000), At(3));
  other.Add(OfFile(2, 0x10000, 0x11000), At(4));
  EXPECT_EQ(other.All().size(), 4u) << "two parts of one file";
}

// A build-id may be read when its file is no longer mapped there.
TEST(FormerMappings, AreIdentifiedLater) {
  const auto without_id = [](uint64_t inode) {
    Mapping mapping = OfFile(inode, 0x10000, 0x11000);
    mapping.build_id.clear();
    return mapping;
  };
  Mappings mappings;
  mappings.Add(without_id(1), At(1));
  mappings.Add(without_id(2), At(2));
  mappings.Add(without_id(1), At(3));
  mappings.Add(without_id(3), At(4));
  const Mappings copy = mappings;
  EXPECT_FALSE(mappings.SetBuildId(without_id(1), "id"));
  for (const uint64_t time : {1, 3}) EXPECT_EQ(mappings.Find(mappings.Place(0x10010, time))->build_id, "id");
  EXPECT_EQ(mappings.Find(mappings.Place(0x10010, 2))->build_id, "");
  EXPECT_EQ(copy.Find(copy.Place(0x10010, 1))->build_id, "");
  EXPECT_FALSE(mappings.SetBuildId(without_id(1), "another"));
  EXPECT_EQ(mappings.Find(mappings.Place(0x10010, 1))->build_id, "id");
  // It is known when it is replaced again.
  mappings.Add(OfFile(2, 0x10000, 0x11000), At(5));
  mappings.Add(OfFile(1, 0x10000, 0x11000), At(6));
  EXPECT_EQ(mappings.Find(mappings.Place(0x10010, 2))->build_id, "id2");
  EXPECT_EQ(mappings.Place(0x10010, 5), mappings.Place(0x10010, 2));
}

// A plugin that was built again may have the number of the file that was removed.
TEST(FormerMappings, AnInodeNumberIsUsedAgain) {
  Mappings mappings;
  for (const uint32_t generation : {1, 2, 0}) {
    Mapping mapping = OfFile(5, 0x10000, 0x11000);
    mapping.generation = generation;
    mapping.path = absl::StrCat("/", generation);
    mappings.Add(mapping, At(1 + mappings.size()));
  }
  EXPECT_EQ(PathAt(mappings, 0x10010, 1), "/1+10");
  EXPECT_EQ(mappings.former().size(), 1u) << "the third one may be the second";
}

// Whoever reads the mappings again does not know when one was replaced.
TEST(FormerMappings, ATimeInBetweenIsUncertain) {
  Mappings mappings;
  mappings.Add(OfFile(1, 0x10000, 0x11000), At(10));
  mappings.Add(OfFile(2, 0x10000, 0x11000), {.since = 20, .time = 30});
  mappings.Add(OfFile(3, 0x20000, 0x21000), {.since = 20, .time = 30});
  EXPECT_EQ(PathAt(mappings, 0x10010, 19), "/plugin1+10");
  for (const uint64_t time : {20, 29}) EXPECT_EQ(PathAt(mappings, 0x10010, time), "none");
  EXPECT_EQ(PathAt(mappings, 0x10010, 30), "/plugin2+10");
  EXPECT_EQ(PathAt(mappings, 0x20010, 25), "/plugin3+10") << "nothing was there before";
}

// What lies between two of them is known.
TEST(FormerMappings, UncertainRangesAreApart) {
  Mappings mappings;
  for (uint64_t i = 0; i <= 2 * kMaxForgotten; i++)
    mappings.Add(OfFile(1 + i, i * 0x10000, i * 0x10000 + 0x1000), At(1));
  const auto replace = [&](uint64_t i) {
    mappings.Add(OfFile(100, i * 0x10000, i * 0x10000 + 0x1000), {.since = 20, .time = 30});
  };
  const auto path_of = [&](uint64_t i) { return PathAt(mappings, i * 0x10000 + 0x10, 25); };
  for (uint64_t i = 0; i < 2 * kMaxForgotten; i += 2) replace(i);
  for (uint64_t i = 0; i < 2 * kMaxForgotten; i++) {
    EXPECT_EQ(path_of(i), i % 2 == 0 ? "none" : absl::StrCat("/plugin", 1 + i, "+10"));
  }
  // One more is joined with the last one.
  replace(2 * kMaxForgotten);
  EXPECT_EQ(mappings.forgotten().size(), kMaxForgotten);
  EXPECT_EQ(path_of(2 * kMaxForgotten), "none");
  EXPECT_EQ(path_of(2 * kMaxForgotten - 1), "none");
  EXPECT_EQ(path_of(1), "/plugin2+10");
}

// The mappings that are read again are the same ones, of which less is told.
TEST(FormerMappings, WhatIsReadAgainKeepsWhatIsKnown) {
  Mappings mappings;
  Mapping mapping = OfFile(1, 0x10000, 0x11000);
  mapping.generation = 7;
  mappings.Add(mapping, At(10));
  Mapping read = mapping;
  read.generation = 0;
  read.build_id.clear();
  mappings.Add(read, {.since = 20, .time = 30});
  EXPECT_EQ(*mappings.Find(0x10010), mapping);
  EXPECT_EQ(PathAt(mappings, 0x10010, 25), "/plugin1+10");
}

// The oldest and the latest ones are kept.
TEST(FormerMappings, HaveABound) {
  Mappings mappings;
  constexpr uint64_t kTimes = kMaxFormer + 50;
  for (uint64_t time = 1; time <= kTimes; time++) mappings.Add(OfFile(time, 0x10000, 0x11000), At(time));
  EXPECT_EQ(mappings.former().size(), kMaxFormer);
  uint64_t unknown = 0;
  for (uint64_t time = 1; time <= kTimes; time++) {
    const std::string path = PathAt(mappings, 0x10010, time);
    if (path == "none") {
      unknown++;
    } else {
      EXPECT_EQ(path, absl::StrCat("/plugin", time, "+10"));
    }
  }
  EXPECT_EQ(unknown, kTimes - 1 - kMaxFormer);
  EXPECT_EQ(PathAt(mappings, 0x10010, 1), "/plugin1+10");
  EXPECT_EQ(PathAt(mappings, 0x10010, std::nullopt), "none");
}

TEST(FormerMappings, TheirAddressesHaveABound) {
  Mappings mappings;
  for (const uint64_t time : {1, 2, 3}) mappings.Add(OfFile(time, 0, kFormerBegin), At(time));
  EXPECT_EQ(PathAt(mappings, 0x10010, 1), "/plugin1+10010");
  EXPECT_EQ(PathAt(mappings, 0x10010, 2), "none");
  EXPECT_EQ(PathAt(mappings, 0x10010, 3), "/plugin3+10010");
}

TEST(FormerMappings, AreKeptInOrder) {
  Mappings mappings;
  mappings.Add(OfFile(1, 0x10000, 0x11000), At(10));
  mappings.Add(OfFile(2, 0x10000, 0x11000), At(20));
  Mappings copy;
  copy.Add(OfFile(2, 0x10000, 0x11000));
  copy.AddFormer(mappings.former()[0]);
  EXPECT_EQ(PathAt(copy, 0x10010, 15), "/plugin1+10");
  const auto add = [&](uint64_t start, uint64_t end, uint64_t until) {
    copy.AddFormer(
        {.mapping = std::make_shared<const Mapping>(OfFile(9, start, end)), .start = 0x10000, .until = until});
  };
  add(kFormerBegin + 0x10000, kFormerBegin + 0x11000, 19);
  add(kFormerBegin + 0x10000, kFormerBegin + 0x10000, 30);
  add(0x10000, 0x11000, 30);
  EXPECT_EQ(copy.former().size(), 1u);
  copy.Add(OfFile(3, 0x10000, 0x11000), At(40));
  EXPECT_EQ(PathAt(copy, 0x10010, 25), "/plugin2+10");
  EXPECT_NE(copy.former()[0].mapping->start, copy.former()[1].mapping->start);
}

// --- mappings in agreement -------------------------------------------------------------------------------------------

TEST(MappingsInAgreement, LeaveOutWhatWasReplacedInBetween) {
  Mappings placed;
  placed.Add(OfFile(1, 0x10000, 0x14000), At(10));
  placed.Add(OfFile(2, 0x20000, 0x24000), At(10));
  placed.Add(OfFile(3, 0x30000, 0x34000), At(10));
  Mappings latest = placed;
  latest.Add(OfFile(4, 0x22000, 0x26000), At(20));  // in place of a part of the second
  latest.Add(OfFile(3, 0x30000, 0x34000), At(20));  // once more
  latest.Add(OfFile(5, 0x40000, 0x44000), At(20));  // where nothing was
  latest.Add(OfFile(1, 0x12000, 0x13000), At(20));  // the same file, but another part of it
  const std::vector<Mapping> left = InAgreement(placed.All(), latest.All());
  std::vector<std::string> described;
  for (const Mapping& one : left) {
    if (one.start < kFormerBegin) described.push_back(absl::StrCat(absl::Hex(one.start), " ", one.path));
  }
  EXPECT_THAT(described,
              ElementsAre("10000 /plugin1", "13000 /plugin1", "20000 /plugin2", "30000 /plugin3", "40000 /plugin5"));
  EXPECT_EQ(left.size(), described.size() + latest.former().size()) << "former mappings have addresses of their own";
}

TEST(MappingsInAgreement, HaveTheLatestBuildIds) {
  Mappings placed;
  placed.Add(Make(0x1000, 0x2000, "a"));
  Mappings latest = placed;
  ASSERT_TRUE(latest.SetBuildId(*latest.Find(0x1000), "id"));
  EXPECT_EQ(InAgreement(placed.All(), latest.All()).at(0).build_id, "id");
  EXPECT_EQ(InAgreement({}, latest.All()).size(), 1u);
  EXPECT_TRUE(InAgreement(placed.All(), {}).empty());
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
  EXPECT_EQ(mappings.refused(), 2 * kMaxMappings - mappings.size());
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
