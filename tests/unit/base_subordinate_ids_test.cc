// SPDX-License-Identifier: Apache-2.0
#include "gtest/gtest.h"
#include "userspace/base/subordinate_ids.h"

namespace heaptap::base {
namespace {

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

}  // namespace
}  // namespace heaptap::base
