// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/unwind_image.h"
#include "userspace/elf/file.h"
#include "userspace/unwind/file_table.h"
#include "userspace/unwind/table.h"

namespace heaptap::unwind {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::StatusOr<FileTable> Read(const elf::ElfImage& image) {
  base::FileDescriptor descriptor = elf::FileWith(image.Bytes());
  absl::StatusOr<elf::File> file = elf::File::Open(descriptor.get());
  if (!file.ok()) return file.status();
  return ReadFileTable(*file);
}

FileTable MustRead(const elf::ElfImage& image) {
  absl::StatusOr<FileTable> table = Read(image);
  EXPECT_TRUE(table.ok()) << table.status();
  return table.value_or(FileTable());
}

uint32_t Words(int32_t words) { return heaptap_unwind_rule(HEAPTAP_CFA_RSP, words, 0, 0, 0); }

// "PC WORDS" of each row, the pc in hexadecimal; every rule is RSP + 8 * WORDS, or none.
std::vector<std::string> Describe(const FileTable& table) {
  std::vector<std::string> lines;
  for (const heaptap_row& row : table.rows) {
    const int words = heaptap_unwind_cfa_parameter(row.rule);
    EXPECT_EQ(row.rule, words == 0 ? 0 : Words(words));
    lines.push_back(absl::StrCat(absl::Hex(row.pc), " ", words));
  }
  return lines;
}

// Adds one function whose CFA is `words` words above RSP.
void Add(EhFrame& frames, uint64_t cie, uint64_t address, uint64_t size, uint64_t words) {
  frames.AddFde(cie, address, size, DefCfaOffset(8 * words));
}

elf::ElfImage WithFrames(const EhFrame& frames) {
  elf::ElfImage image;
  image.AddSection(".eh_frame", SHT_PROGBITS, frames.bytes, kFrames);
  return image;
}

TEST(FileTable, OffsetsAreNotAddresses) {
  EhFrame frames;
  const uint64_t cie = frames.AddCie();
  Add(frames, cie, kCode + 0x20, 0x10, 5);
  elf::ElfImage image = WithFrames(frames);
  image.AddSegment(PT_LOAD, PF_R | PF_X, 0x7000, kCodeSize, kCode);
  FileTable table = MustRead(image);
  EXPECT_EQ(table.base, 0x7000);
  EXPECT_THAT(Describe(table), ElementsAre("0 0", "20 5", "30 0"));
  EXPECT_EQ(RuleAtOffset(table, 0x7020), Words(5));
  EXPECT_EQ(RuleAtOffset(table, 0x7030), 0);
  EXPECT_EQ(RuleAtOffset(table, 0x6fff), 0);
  EXPECT_EQ(RuleAtOffset(table, ~uint64_t{0}), 0);
  EXPECT_EQ(RuleAtOffset(table, 0x7020 + (uint64_t{1} << 32)), 0);
}

TEST(FileTable, SegmentsThatFollowEachOther) {
  EhFrame frames;
  const uint64_t cie = frames.AddCie();
  Add(frames, cie, kCode + 0xf0, 0x10, 5);
  Add(frames, cie, kCode + 0x1000, 0x10, 6);
  elf::ElfImage image = WithFrames(frames);
  image.AddSegment(PT_LOAD, PF_R | PF_X, 0x7000, 0x100, kCode);
  image.AddSegment(PT_LOAD, PF_R | PF_X, 0x7100, 0x100, kCode + 0x1000);
  EXPECT_THAT(Describe(MustRead(image)), ElementsAre("0 0", "f0 5", "100 6", "110 0"));
}

TEST(FileTable, SegmentsInAnotherOrderThanTheirAddresses) {
  EhFrame frames;
  const uint64_t cie = frames.AddCie();
  Add(frames, cie, 0x10000, 0x10, 2);  // where its segment begins
  Add(frames, cie, 0x10ff0, 0x10, 3);  // up to where it ends
  Add(frames, cie, 0x20000, 0x1000, 4);
  Add(frames, cie, 0x30010, 0x10, 5);
  elf::ElfImage image = WithFrames(frames);
  image.AddSegment(PT_LOAD, PF_R | PF_X, 0x9000, 0x1000, 0x10000);
  image.AddSegment(PT_LOAD, PF_R | PF_W, 0x1000, 0x1000, 0x40000);
  image.AddSegment(PT_LOAD, PF_R | PF_X, 0x5000, 0x1000, 0x20000);
  image.AddSegment(PT_LOAD, PF_R | PF_X, 0x6000, 0x1000, 0x30000);
  FileTable table = MustRead(image);
  EXPECT_EQ(table.base, 0x5000);
  EXPECT_THAT(Describe(table),
              ElementsAre("0 4", "1000 0", "1010 5", "1020 0", "4000 2", "4010 0", "4ff0 3", "5000 0"));
}

TEST(FileTable, FunctionThatBeginsBeforeItsSegment) {
  EhFrame frames;
  Add(frames, frames.AddCie(), 0x10000, 0x2000, 7);
  elf::ElfImage image = WithFrames(frames);
  image.AddSegment(PT_LOAD, PF_R | PF_X, 0x1000, 0x2000, 0x10000);
  image.AddSegment(PT_LOAD, PF_R | PF_X, 0x8000, 0x800, 0x11000);  // again
  EXPECT_THAT(Describe(MustRead(image)), ElementsAre("0 7", "2000 0", "7000 7", "7800 0"));
}

TEST(FileTable, OfOverlappingSegmentsTheFirstCounts) {
  EhFrame frames;
  const uint64_t cie = frames.AddCie();
  Add(frames, cie, 0x10000, 0x1000, 2);
  Add(frames, cie, 0x20000, 0x1000, 3);
  elf::ElfImage image = WithFrames(frames);
  image.AddSegment(PT_LOAD, PF_R | PF_X, 0x1000, 0x1000, 0x10000);
  image.AddSegment(PT_LOAD, PF_R | PF_X, 0x1800, 0x1000, 0x20000);
  image.AddSegment(PT_LOAD, PF_R | PF_X, 0x2000, ~uint64_t{0} - 0x1fff, 0x20000);
  EXPECT_THAT(Describe(MustRead(image)), ElementsAre("0 2", "1000 0"));
}

TEST(FileTable, SegmentsFarApart) {
  EhFrame frames;
  const uint64_t cie = frames.AddCie();
  Add(frames, cie, 0x10000, 0x10, 2);
  Add(frames, cie, 0x20000, 0x10, 3);
  elf::ElfImage image = WithFrames(frames);
  image.AddSegment(PT_LOAD, PF_R | PF_X, 0x1000, 0x1000, 0x10000);
  image.AddSegment(PT_LOAD, PF_R | PF_X, uint64_t{1} << 40, 0x1000, 0x20000);
  image.AddSegment(PT_LOAD, PF_R | PF_X, ~uint64_t{0xfff}, 0x1000, 0x20000);
  EXPECT_THAT(Describe(MustRead(image)), ElementsAre("0 2", "10 0"));
}

TEST(FileTable, NoUnwindInformation) {
  EXPECT_THAT(MustRead(ImageWithCode()).rows, IsEmpty());
  EhFrame frames;
  frames.AddCie();
  EXPECT_THAT(MustRead(ImageWith(frames)).rows, IsEmpty());
}

TEST(FileTable, NothingReadable) {
  EhFrame frames;
  const uint64_t cie = frames.AddCie();
  Add(frames, cie, 0x90000, 0x10, 2);  // where no code is
  absl::StatusOr<FileTable> table = Read(ImageWith(frames));
  EXPECT_TRUE(absl::IsInvalidArgument(table.status()));
}

// A hundred thousand rows, as often as a file has segments.
TEST(FileTable, SegmentsThatAllHaveTheSameAddresses) {
  EhFrame frames;
  const uint64_t cie = frames.AddCie();
  for (uint64_t i = 0; i < 20000; i++) Add(frames, cie, 0x10000 + 2 * i, 2, 1 + i % 2);
  elf::ElfImage image = WithFrames(frames);
  for (uint64_t i = 0; i < 2000; i++) image.AddSegment(PT_LOAD, PF_R | PF_X, i << 20, 40000, 0x10000);
  absl::StatusOr<FileTable> table = Read(image);
  EXPECT_TRUE(absl::IsInvalidArgument(table.status()));
  EXPECT_THAT(std::string(table.status().message()), HasSubstr("rows"));
}

// --- trees -----------------------------------------------------------------------------------------------------------

TEST(Tree, Shape) {
  for (const uint32_t count : {1, 503, 504, 505, 1008, 1009, 504 * 504, 504 * 504 + 1, 600000}) {
    std::vector<heaptap_row> rows;
    for (uint32_t i = 0; i < count; i++) rows.push_back({i * 3, i + 1});
    EXPECT_EQ(CountLevels(count), count <= 504 ? 1 : count <= 504 * 504 ? 2 : 3);
    const std::vector<heaptap_rows> nodes = MakeNodes(rows, 0, SIZE_MAX);
    ASSERT_EQ(nodes.size(), CountNodes(count));
    // The lowest level is the table.
    const size_t leaves = (count + 503) / 504;
    size_t i = 0;
    for (size_t node = nodes.size() - leaves; node < nodes.size(); node++) {
      for (const heaptap_row& row : nodes[node].rows) {
        ASSERT_EQ(row.pc, i < count ? rows[i].pc : ~0u);
        ASSERT_EQ(row.rule, i < count ? rows[i].rule : 0);
        i++;
      }
    }
    // The entries above it name each node but the root, in order, with its first pc.
    size_t below = 1;
    for (size_t node = 0; node < nodes.size() - leaves; node++) {
      for (const heaptap_row& row : nodes[node].rows) {
        if (row.pc == ~0u) continue;
        ASSERT_EQ(row.rule, below);
        ASSERT_EQ(row.pc, nodes[below].rows[0].pc);
        below++;
      }
    }
    EXPECT_EQ(below, nodes.size());
  }
  EXPECT_EQ(CountNodes(0), 0);
}

TEST(Tree, InPieces) {
  std::vector<heaptap_row> rows;
  for (uint32_t i = 0; i < 504 * 504 + 1; i++) rows.push_back({i * 3, i + 1});
  const std::vector<heaptap_rows> whole = MakeNodes(rows, 0, SIZE_MAX);
  std::vector<heaptap_rows> pieces;
  while (pieces.size() < whole.size()) {
    const std::vector<heaptap_rows> piece = MakeNodes(rows, pieces.size(), 100);
    ASSERT_EQ(piece.size(), std::min<size_t>(100, whole.size() - pieces.size()));
    pieces.insert(pieces.end(), piece.begin(), piece.end());
  }
  EXPECT_EQ(memcmp(pieces.data(), whole.data(), whole.size() * sizeof(heaptap_rows)), 0);
  EXPECT_TRUE(MakeNodes(rows, whole.size(), 100).empty());
  EXPECT_TRUE(MakeNodes({}, 0, 100).empty());
}

// --- real files ------------------------------------------------------------------------------------------------------

std::string FileOf(const void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0 ? info.dli_fname : "";
}

TEST(FileTable, AgreesWithTheTableAtEveryAddress) {
  const std::string files[] = {FileOf(reinterpret_cast<const void*>(&qsort)),
                               FileOf(dlsym(RTLD_DEFAULT, "_ZSt9terminatev")), HEAPTAP_COLLECTOR};
  for (const std::string& name : files) {
    // The collector is large: every seventh address of it.
    const uint64_t step = name == HEAPTAP_COLLECTOR ? 7 : 1;
    base::FileDescriptor descriptor(open(name.c_str(), O_RDONLY | O_CLOEXEC));
    absl::StatusOr<elf::File> file = elf::File::Open(descriptor.get());
    ASSERT_TRUE(file.ok()) << name << file.status();
    absl::StatusOr<Table> table = BuildTable(*file);
    absl::StatusOr<FileTable> by_offset = ReadFileTable(*file);
    ASSERT_TRUE(table.ok() && by_offset.ok()) << name;
    EXPECT_GT(by_offset->rows.size(), 1000);
    uint64_t differences = 0;
    uint64_t rules = 0;
    for (const elf::Segment& segment : file->segments()) {
      if (segment.type != PT_LOAD || (segment.flags & PF_X) == 0) continue;
      for (uint64_t i = 0; i < segment.file_size; i += step) {
        const uint32_t rule = RuleAt(*table, segment.address + i);
        rules += rule != 0;
        differences += rule != RuleAtOffset(*by_offset, segment.offset + i);
      }
      EXPECT_EQ(RuleAtOffset(*by_offset, segment.offset + segment.file_size), 0);
    }
    EXPECT_EQ(differences, 0) << name;
    EXPECT_GT(rules, 100000) << name;
  }
}

}  // namespace
}  // namespace heaptap::unwind
