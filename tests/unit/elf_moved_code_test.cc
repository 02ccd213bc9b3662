// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/elf/moved_code.h"

namespace heaptap::elf {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kBefore[] = "1000-3000 r--p 00000000 fe:01 77                       /bin/a\\012b\n";
constexpr char kCode[] = "3000-6000 r-xp 00000000 00:00 0 \n";
constexpr char kBehind[] = "6000-8000 r--p 00005000 fe:01 77                       /bin/a\\012b\n";

TEST(MovedCode, BetweenTwoMappingsOfOneFile) {
  const std::string maps = absl::StrCat(kBefore, kCode, kBehind);
  const std::vector<MovedCode> moved = FindMovedCode(maps, 9);
  ASSERT_THAT(moved, SizeIs(1));
  EXPECT_EQ(moved[0].start, 0x3000);
  EXPECT_EQ(moved[0].end, 0x6000);
  EXPECT_EQ(moved[0].file_offset, 0x2000);
  EXPECT_EQ(moved[0].neighbour.start, 0x1000);
  EXPECT_EQ(moved[0].neighbour.end, 0x3000);
  EXPECT_EQ(moved[0].neighbour.path, "/bin/a\nb");
  const absl::StatusOr<std::vector<Mapping>> named = ParseMaps(WithMovedCode(maps, moved));
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ((*named)[0], (Mapping{.start = 0x3000,
                                  .end = 0x6000,
                                  .file_offset = 0x2000,
                                  .device_major = 0xfe,
                                  .device_minor = 1,
                                  .inode = 77,
                                  .path = "/bin/a\nb"}));
}

TEST(MovedCode, SeveralPiecesAmongOtherLines) {
  const std::string others =
      "9000-a000 rwxp 00000000 00:00 0 \na000-b000 r-xp 00000000 00:00 0                [vdso]\n";
  const std::string maps =
      absl::StrCat(others, kBefore, "3000-4000 r-xp 00000000 00:00 0\n4000-5000 rw-p 00000000 00:00 0 \n",
                   "5000-6000 rwxp 00000000 00:00 0 \n", kBehind, others);
  const std::vector<MovedCode> moved = FindMovedCode(maps, 9);
  ASSERT_THAT(moved, SizeIs(2)) << "the second of the three is no code";
  EXPECT_EQ(moved[1].file_offset, 0x4000);
  const absl::StatusOr<std::vector<Mapping>> named = ParseMaps(WithMovedCode(maps, moved));
  ASSERT_TRUE(named.ok()) << named.status();
  ASSERT_THAT(*named, SizeIs(6));
  EXPECT_EQ((*named)[2].inode, 77);
  EXPECT_EQ((*named)[3].inode, 77);
  EXPECT_EQ((*named)[4].path, "");
  EXPECT_THAT(FindMovedCode(maps, 1), SizeIs(1));
  EXPECT_EQ(WithMovedCode(maps, {}), maps);
}

TEST(MovedCode, OtherCodeStaysAnonymous) {
  const std::string other = "6000-8000 r--p 00005000 fe:01 78                       /bin/other\n";
  const std::string shifted = "6000-8000 r--p 00006000 fe:01 77                       /bin/a\\012b\n";
  const std::string later = "7000-8000 r--p 00006000 fe:01 77                       /bin/a\\012b\n";
  for (const std::string& behind : {std::string(), other, shifted, later, std::string("not a line\n")}) {
    EXPECT_THAT(FindMovedCode(absl::StrCat(kBefore, kCode, behind), 9), IsEmpty()) << behind;
  }
  EXPECT_THAT(FindMovedCode(absl::StrCat(kCode, kBehind), 9), IsEmpty());
  EXPECT_THAT(FindMovedCode(absl::StrCat(kBefore, "3000-6000 rw-p 00000000 00:00 0 \n", kBehind), 9), IsEmpty());
  EXPECT_THAT(FindMovedCode(absl::StrCat(kBefore, "3000-6000 r-xp 00000000 00:00 0       [anon:jit]\n", kBehind), 9),
              IsEmpty());
  EXPECT_THAT(FindMovedCode("", 9), IsEmpty());
  EXPECT_THAT(FindMovedCode("1-\n-\n1-2 r\n1-2 r-xp 0 0:0", 9), IsEmpty());
}

}  // namespace
}  // namespace heaptap::elf
