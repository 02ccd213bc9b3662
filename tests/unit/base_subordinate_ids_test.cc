// SPDX-License-Identifier: Apache-2.0
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/base/subordinate_ids.h"

namespace heaptap::base {
namespace {

using ::testing::ElementsAre;
using Block = SubordinateIds::Block;

TEST(SubordinateIds, BelongToTheirUser) {
  const auto find_user = [](const std::string& name) -> std::optional<uid_t> {
    return name == "ann" ? std::optional<uid_t>(1000) : std::nullopt;
  };
  const SubordinateIds ids(
      "ann:100000:65536\n1001:200000:1\nnobody-knows:300000:10\n\nbroken\nann:x:5\nann:400000:0\nann:4294967295:5\n",
      find_user);
  EXPECT_EQ(ids.OwnerOf(99999), 99999u);
  EXPECT_EQ(ids.OwnerOf(100000), 1000u);
  EXPECT_EQ(ids.OwnerOf(165535), 1000u);
  EXPECT_EQ(ids.OwnerOf(165536), 165536u);
  EXPECT_EQ(ids.OwnerOf(200000), 1001u);
  EXPECT_EQ(ids.OwnerOf(200001), 200001u);
  EXPECT_EQ(ids.OwnerOf(300000), 300000u);
  EXPECT_EQ(ids.OwnerOf(400000), 400000u);
  EXPECT_EQ(ids.OwnerOf(0), 0u);
  EXPECT_EQ(SubordinateIds().OwnerOf(100000), 100000u);
}

TEST(SubordinateIds, AreInBlocksOfEqualFirstBits) {
  const auto blocks_of = [](const char* text) {
    return SubordinateIds(text, [](const std::string&) { return std::nullopt; }).Blocks();
  };
  EXPECT_THAT(blocks_of("7:65536:65536\n8:5:1\n"),
              ElementsAre(Block{.first = 5, .bits = 32, .owner = 8}, Block{.first = 65536, .bits = 16, .owner = 7}));
  EXPECT_THAT(blocks_of("7:6:7\n"),
              ElementsAre(Block{.first = 6, .bits = 31, .owner = 7}, Block{.first = 8, .bits = 30, .owner = 7},
                          Block{.first = 12, .bits = 32, .owner = 7}));
  EXPECT_THAT(blocks_of("7:0:2\n"), ElementsAre(Block{.first = 0, .bits = 31, .owner = 7}));
  EXPECT_THAT(blocks_of("7:4294967294:1\n"), ElementsAre(Block{.first = 4294967294, .bits = 32, .owner = 7}));
  // As many ids as there are.
  uint64_t ids = 0;
  for (const Block& block : blocks_of("7:100000:65536\n")) ids += uint64_t{1} << (32 - block.bits);
  EXPECT_EQ(ids, 65536);
}

}  // namespace
}  // namespace heaptap::base
