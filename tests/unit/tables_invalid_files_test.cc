// SPDX-License-Identifier: Apache-2.0
//
// Tests unwind tables of files that are invalid, on the real kernel.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/need_bpf.h"
#include "tests/unit/unwind_tables_fixture.h"

namespace heaptap::recording {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Malformed {
  const char* name;
  std::string bytes;
};

std::string WithFrames(const std::string& frames) {
  EhFrame section;
  section.bytes = frames;
  return unwind::ImageWith(section).Bytes();
}

EhFrame GoodFrames() {
  EhFrame frames;
  const uint64_t cie = frames.AddCie();
  for (uint64_t i = 0; i < 8; i++) frames.AddFde(cie, kCode + 0x20 * i, 0x20, unwind::DefCfaOffset(16 + 8 * i));
  return frames;
}

std::string WithCie(const unwind::CieFields& cie) {
  EhFrame frames;
  frames.AddFde(frames.AddCie(cie), kCode, 0x20, "");
  return unwind::ImageWith(frames).Bytes();
}

std::vector<Malformed> MalformedFiles() {
  using elf::BytesOf;
  std::vector<Malformed> files;
  const std::string good = GoodFrames().bytes;
  for (const size_t size : {size_t{5}, size_t{12}, size_t{30}, good.size() - 1}) {
    files.push_back({"truncated", WithFrames(good.substr(0, size))});
  }
  EhFrame frames = GoodFrames();
  frames.AddEntry(BytesOf(uint32_t{0}), 1000);
  files.push_back({"entry longer than the section", unwind::ImageWith(frames).Bytes()});
  files.push_back({"length of 4 GiB", WithFrames(good + BytesOf(uint32_t{0xfffffff0}) + std::string(64, 'x'))});
  files.push_back({"length of 2^64", WithFrames(good + BytesOf(uint32_t{0xffffffff}) + BytesOf(~uint64_t{0}))});
  files.push_back({"length of 2^63", WithFrames(BytesOf(uint32_t{0xffffffff}) + BytesOf(uint64_t{1} << 63) + good)});

  // The CIE pointer of an entry at offset 0 whose distance is 4 points to itself.
  files.push_back({"FDE that is its own CIE", WithFrames(BytesOf(uint32_t{20}) + BytesOf(uint32_t{4}) +
                                                         BytesOf(uint64_t{kCode}) + BytesOf(uint64_t{16}))});
  // Each of two says that the other is its CIE.
  const std::string body = BytesOf(uint64_t{kCode}) + BytesOf(uint64_t{16});
  files.push_back({"two FDEs in a circle", WithFrames(BytesOf(uint32_t{20}) + BytesOf(int32_t{4 - 24}) + body +
                                                      BytesOf(uint32_t{20}) + BytesOf(uint32_t{28}) + body)});
  for (const uint32_t distance : {0x7fffffffu, 0x80000000u, 0xffffffffu, 1u}) {
    files.push_back({"CIE pointer that leads nowhere", WithFrames(BytesOf(uint32_t{20}) + BytesOf(distance) + body)});
  }

  for (const char* augmentation : {"eh", "q", "R", "\xff"}) {
    unwind::CieFields cie;
    cie.augmentation = augmentation;
    files.push_back({"augmentation", WithCie(cie)});
  }
  unwind::CieFields cie;
  cie.augmentation = "zPLR";
  cie.augmentation_data = "\x1b";  // no personality
  files.push_back({"augmentation data cut short", WithCie(cie)});
  cie = {};
  cie.version = 9;
  files.push_back({"version", WithCie(cie)});
  cie = {};
  cie.return_address = 3;
  files.push_back({"return address column", WithCie(cie)});
  cie = {};
  cie.instructions = unwind::kRestoreState;
  files.push_back({"restore without remember", WithCie(cie)});
  cie = {};
  cie.instructions = "\x0c" + std::string(11, '\xff');
  files.push_back({"number of more than 64 bits", WithCie(cie)});
  cie = {};
  cie.augmentation_data = "\x7f";
  files.push_back({"pointer encoding", WithCie(cie)});

  frames = {};
  frames.AddFde(frames.AddCie(), kCode, 0x20, unwind::Byte(0x3f));
  files.push_back({"unknown instruction", unwind::ImageWith(frames).Bytes()});
  frames = {};
  frames.AddFde(frames.AddCie(), kCode + (1 << 30), 0x20, "");
  files.push_back({"function where no code is", unwind::ImageWith(frames).Bytes()});
  frames = {};
  cie = {};
  cie.augmentation_data = unwind::Byte(0x04);  // absolute, 8 bytes
  frames.AddFdeWith(frames.AddCie(cie), BytesOf(~uint64_t{7}) + BytesOf(~uint64_t{7}) + unwind::Byte(0));
  files.push_back({"function beyond the end of all addresses", unwind::ImageWith(frames).Bytes()});

  const auto with_section = [](uint64_t offset, uint64_t size) {
    elf::ElfImage image = unwind::ImageWithCode();
    Elf64_Shdr& section = image.AddSection(".eh_frame", SHT_PROGBITS, "x", unwind::kFrames);
    section.sh_offset = offset;
    section.sh_size = size;
    return image.Bytes();
  };
  files.push_back({"section beyond the end of the file", with_section(1 << 30, 100)});
  files.push_back({"section of 2^63 bytes", with_section(0x1000, uint64_t{1} << 63)});
  files.push_back({"section of 2^64 - 1 bytes", with_section(1, ~uint64_t{0})});
  files.push_back({"section at offset 2^64 - 8", with_section(~uint64_t{7}, 8)});
  files.push_back({"section of 1 GiB", with_section(0, 1 << 30)});

  elf::ElfImage image = unwind::ImageWithCode();
  image.AddSegment(PT_GNU_EH_FRAME, PF_R, ~uint64_t{0}, ~uint64_t{0}, 0);
  files.push_back({"header beyond the end of the file", image.Bytes()});
  image = unwind::ImageWithCode();
  const uint64_t offset = image.AddBytes("\x01\x1b\x03\xff" + BytesOf(uint32_t{0x70000000}) + BytesOf(~uint32_t{0}));
  image.AddSegment(PT_GNU_EH_FRAME, PF_R, offset, 12, unwind::kFrames);
  files.push_back({"header that points nowhere", image.Bytes()});

  image = unwind::ImageWith(GoodFrames());
  image.header.e_phentsize = 1;
  files.push_back({"entries of 1 byte", image.Bytes()});
  image = {};
  image.AddSection(".eh_frame", SHT_PROGBITS, good, unwind::kFrames);
  files.push_back({"no code", image.Bytes()});

  // Many rows in little space: the same function in as many segments as there can be.
  image = elf::ElfImage();
  frames = {};
  const uint64_t first = frames.AddCie();
  for (uint64_t i = 0; i < 2400; i++) frames.AddFde(first, kCode + i, 1, unwind::DefCfaOffset(8 + i % 2 * 8));
  for (uint64_t i = 0; i < 2000; i++) image.AddSegment(PT_LOAD, PF_R | PF_X, 0x1000 * i, 0x1000, kCode);
  image.AddSection(".eh_frame", SHT_PROGBITS, frames.bytes, unwind::kFrames);
  files.push_back({"2000 segments at one address", image.Bytes()});
  return files;
}

TEST_F(UnwindTablesTest, MalformedFilesCostOneLineEach) {
  NEED_BPF(Load());
  for (const Malformed& one : MalformedFiles()) {
    MappedImage image(one.bytes);
    const std::string said = Enter(image);
    EXPECT_EQ(Lines(said), 1) << one.name << ": " << said;
    EXPECT_THAT(said, HasSubstr("no unwind table for")) << one.name;
    EXPECT_EQ(StateOf(image), HEAPTAP_FILE_WITHOUT_TABLE) << one.name;
    EXPECT_EQ(FindRule(image, kCode), 0) << one.name;
    // Once.
    EXPECT_THAT(Enter(image), IsEmpty()) << one.name;
  }
  EXPECT_EQ(tables_->kernel().bytes(), 0);
}

// One broken function costs only itself.
TEST_F(UnwindTablesTest, OneBrokenFunctionAmongGoodOnes) {
  NEED_BPF(Load());
  EhFrame frames = GoodFrames();
  frames.AddFde(0, kCode + 0x200, 0x20, unwind::Byte(0x3f));
  MappedImage image(unwind::ImageWith(frames).Bytes());
  EXPECT_THAT(Enter(image), IsEmpty());
  EXPECT_EQ(StateOf(image), HEAPTAP_FILE_LOADED);
  EXPECT_EQ(FindRule(image, kCode + 0x20), Words(3));
  EXPECT_EQ(FindRule(image, kCode + 0x200), 0);
}

TEST_F(UnwindTablesTest, FilesThatAreNoneOfOurBusiness) {
  NEED_BPF(Load());
  for (const std::string& bytes : {std::string("text"),
                                   std::string("\x7f"
                                               "ELF\x01\x01\x01",
                                               7),
                                   std::string()}) {
    MappedImage image(bytes);
    EXPECT_THAT(Enter(image), IsEmpty());
    EXPECT_EQ(StateOf(image), HEAPTAP_FILE_WITHOUT_TABLE);
  }
}

// Each byte of a valid file is corrupted in turn: there is a table, or there is none and one line gives the reason; no
// line if the file is not ours any more.
TEST_F(UnwindTablesTest, EveryByteBroken) {
  NEED_BPF(Load(4000));
  const std::string good = unwind::ImageWith(GoodFrames()).Bytes();
  int loaded = 0;
  int64_t lines = 0;
  for (size_t i = 0; i < good.size(); i += 3) {
    std::string bytes = good;
    bytes[i] = static_cast<char>(bytes[i] ^ (i % 2 == 0 ? 0xff : 0x80));
    MappedImage image(bytes);
    const std::string said = Enter(image);
    const bool is_loaded = StateOf(image) == HEAPTAP_FILE_LOADED;
    EXPECT_EQ(Lines(said), is_loaded || said.empty() ? 0 : 1) << i << ": " << said;
    if (!is_loaded) {
      EXPECT_EQ(StateOf(image), HEAPTAP_FILE_WITHOUT_TABLE) << i;
      EXPECT_EQ(FindRule(image, kCode), 0) << i;
    }
    loaded += is_loaded;
    lines += Lines(said);
    maps().RemoveFile(KeyOf(image));
  }
  EXPECT_GT(loaded, 50) << "many bytes do not matter";
  EXPECT_GT(lines, 20);
}

}  // namespace
}  // namespace heaptap::recording
