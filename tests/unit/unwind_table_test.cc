// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/growth.h"
#include "tests/unit/unwind_image.h"
#include "userspace/unwind/call_frame.h"
#include "userspace/unwind/table.h"

namespace heaptap::unwind {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::StatusOr<Table> Build(const std::string& bytes) {
  base::FileDescriptor descriptor = elf::FileWith(bytes);
  auto file = elf::File::Open(descriptor.get());
  if (!file.ok()) return file.status();
  return BuildTable(*file);
}

Table MustBuild(const elf::ElfImage& image) {
  auto table = Build(image.Bytes());
  EXPECT_TRUE(table.ok()) << table.status();
  return table.ok() ? *table : Table();
}

std::string Describe(uint32_t rule) {
  static constexpr const char* kNames[] = {"none",   "end", "rsp", "rbp", "plt", "plt2", "*rbp", "*rsp",
                                           "signal", "r",   "far", "far", "far", "far",  "far",  "unknown"};
  uint32_t kind = heaptap_unwind_cfa_kind(rule);
  if (rule == HEAPTAP_RULE_FRAME_POINTER) return "frame pointer";
  std::string text = kNames[kind];
  if (text == "far") absl::StrAppend(&text, "+", heaptap_unwind_far_words(rule));
  if (kind == HEAPTAP_CFA_RSP || kind == HEAPTAP_CFA_RBP)
    absl::StrAppend(&text, "+", heaptap_unwind_cfa_parameter(rule));
  if (kind == HEAPTAP_CFA_DEREF_RBP || kind == HEAPTAP_CFA_DEREF_RSP || kind == HEAPTAP_CFA_REGISTER) {
    absl::StrAppend(&text, heaptap_unwind_cfa_a(rule), "+", heaptap_unwind_cfa_b(rule));
  }
  static constexpr const char* kRbpNames[] = {"", " rbp=c", " rbp lost", " rbp=rbp"};
  uint32_t rbp = heaptap_unwind_rbp_kind(rule);
  absl::StrAppend(&text, kRbpNames[rbp]);
  if (rbp == HEAPTAP_RBP_AT_CFA || rbp == HEAPTAP_RBP_AT_RBP)
    absl::StrAppend(&text, heaptap_unwind_rbp_parameter(rule));
  if (heaptap_unwind_ra_kind(rule)) absl::StrAppend(&text, " ra=r", heaptap_unwind_rbp_parameter(rule));
  return text;
}

// "PC RULE" of each row, the pc in hexadecimal.
std::vector<std::string> Describe(const Table& table) {
  std::vector<std::string> lines;
  for (const Row& row : table.rows) lines.push_back(absl::StrCat(absl::Hex(row.pc), " ", Describe(row.rule)));
  return lines;
}

// The table of one function, of 0x100 bytes at the start of the code.
Table OneFunction(const std::string& instructions, const CieFields& cie = {}) {
  EhFrame frames;
  frames.AddFde(frames.AddCie(cie), kCode, 0x100, instructions);
  return MustBuild(ImageWith(frames));
}

std::vector<std::string> Rows(const std::string& instructions, const CieFields& cie = {}) {
  return Describe(OneFunction(instructions, cie));
}

TEST(UnwindTable, PlainFunction) {
  Table table = OneFunction(Advance(1) + DefCfaOffset(16) + Offset(6, 2) + Advance(3) + DefCfaRegister(6) +
                            Advance(0x20) + DefCfa(7, 8));
  EXPECT_EQ(table.base, kCode);
  EXPECT_EQ(table.statistics.functions, 1u);
  EXPECT_THAT(Describe(table),
              ElementsAre("0 rsp+1", "1 rsp+2 rbp=c-2", "4 rbp+2 rbp=c-2", "24 rsp+1 rbp=c-2", "100 none"));
}

TEST(UnwindTable, MergesEqualRows) {
  EXPECT_THAT(Rows(Advance(1) + Offset(12, 2) + Advance(1) + DefCfaOffset(8) + Advance(2) + DefCfaOffset(16)),
              ElementsAre("0 rsp+1", "4 rsp+2", "100 none"));
}

TEST(UnwindTable, RememberedStatesAndRestoredRegisters) {
  EXPECT_THAT(Rows(Advance(1) + DefCfaOffset(16) + Offset(6, 2) + kRememberState + Advance(4) + Restore(6) +
                   DefCfaOffset(8) + Advance(1) + kRestoreState + Advance(1) + "\x06\x06"),
              ElementsAre("0 rsp+1", "1 rsp+2 rbp=c-2", "5 rsp+1", "6 rsp+2 rbp=c-2", "7 rsp+2", "100 none"));
}

TEST(UnwindTable, EveryWayToAdvance) {
  std::string set_location = "\x01" + BytesOf(static_cast<int32_t>(kCode + 0xf0 - (kFrames + 0x38)));
  EXPECT_THAT(Rows("\x02\x10" + DefCfaOffset(16) + "\x03" + BytesOf(uint16_t{0x10}) + DefCfaOffset(24) + "\x04" +
                   BytesOf(uint32_t{0x10}) + DefCfaOffset(32) + set_location + DefCfaOffset(8)),
              ElementsAre("0 rsp+1", "10 rsp+2", "20 rsp+3", "30 rsp+4", "f0 rsp+1", "100 none"));
  CieFields cie;
  cie.code_alignment = 4;
  EXPECT_THAT(Rows(Advance(2) + DefCfaOffset(16), cie), ElementsAre("0 rsp+1", "8 rsp+2", "100 none"));
}

TEST(UnwindTable, EveryWayToSaveARegister) {
  EXPECT_THAT(Rows("\x05\x06\x03"), ElementsAre("0 rsp+1 rbp=c-3", "100 none"));
  EXPECT_THAT(Rows("\x11\x06" + Sleb(-3)), ElementsAre("0 rsp+1 rbp=c3", "100 none"));
  EXPECT_THAT(Rows("\x2f\x06\x03"), ElementsAre("0 rsp+1 rbp=c3", "100 none"));
  for (std::string lost : {"\x14\x06\x02", "\x15\x06\x02", "\x07\x06", "\x09\x06\x03", "\x16\x06\x01\x30"}) {
    EXPECT_THAT(Rows(lost), ElementsAre("0 rsp+1 rbp lost", "100 none"));
  }
  EXPECT_THAT(Rows(Offset(6, 2) + "\x08\x06"), ElementsAre("0 rsp+1", "100 none"));
  EXPECT_THAT(Rows(Offset(6, 200)), ElementsAre("0 rsp+1 rbp lost", "100 none"));
  EXPECT_THAT(Rows(Offset(3, 2) + "\x2e\x20" + std::string(3, 0)), ElementsAre("0 rsp+1", "100 none"));
}

TEST(UnwindTable, EveryWayToDefineTheCfa) {
  EXPECT_THAT(Rows("\x12\x06" + Sleb(-3)), ElementsAre("0 rbp+3", "100 none"));
  EXPECT_THAT(Rows("\x13" + Sleb(-4)), ElementsAre("0 rsp+4", "100 none"));
  EXPECT_THAT(Rows(DefCfa(10, 16)), ElementsAre("0 r10+2", "100 none"));
  EXPECT_THAT(Rows(DefCfaOffset(8 * 32767)), ElementsAre("0 rsp+32767", "100 none"));
  // Functions with large arrays.
  for (const int64_t words : {32768, 37508, 98303, 98304, 360447}) {
    EXPECT_THAT(Rows(DefCfaOffset(8 * words)), ElementsAre(absl::StrCat("0 far+", words), "100 none"));
  }
}

TEST(UnwindTable, WhatCannotBeEncodedIsCounted) {
  for (const std::string& instructions :
       {DefCfaOffset(12), DefCfaOffset(8 * 360448), DefCfaOffset(8 * 32768 + 4), DefCfa(6, 8 * 32768),
        DefCfa(10, 8 * 128), DefCfa(17, 8), Offset(16, 2), Offset(7, 1), DefCfaExpression("\x30"),
        std::string("\x14\x10\x01"), "\x09\x10" + Uleb(17)}) {
    Table table = OneFunction(instructions);
    EXPECT_THAT(Describe(table), ElementsAre("0 unknown", "100 none"));
    EXPECT_EQ(table.statistics.unsupported, 1u);
    EXPECT_EQ(table.statistics.broken, 0u);
  }
}

TEST(UnwindTable, LinkersPltEntries) {
  EXPECT_THAT(Rows(DefCfaExpression(std::string("\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22", 11))),
              ElementsAre("0 plt", "100 none"));
  EXPECT_THAT(Rows(DefCfaExpression(std::string("\x77\x08\x80\x00\x3f\x1a\x3a\x2a\x33\x24\x22", 11))),
              ElementsAre("0 plt2", "100 none"));
}

TEST(UnwindTable, StackPointerLoadedFromTheStack) {
  EXPECT_THAT(Rows(DefCfaExpression("\x77" + Sleb(152) + "\x06\x23\x08")), ElementsAre("0 *rsp19+1", "100 none"));
  EXPECT_THAT(Rows(DefCfaExpression("\x76" + Sleb(-8) + "\x06") + Expression(6, std::string("\x76\0", 2))),
              ElementsAre("0 *rbp-1+0 rbp=rbp0", "100 none"));
  for (const std::string& expression :
       {std::string("\x77\x04\x06"), "\x77" + Sleb(1024) + "\x06", std::string("\x77\x08\x06\x22"),
        std::string("\x77\x08\x06\x23"), std::string("\x77\x08"), std::string("\x73\x08\x06"), std::string()}) {
    EXPECT_THAT(Rows(DefCfaExpression(expression)), ElementsAre("0 unknown", "100 none"));
  }
}

TEST(UnwindTable, EndOfTheStackAndReturnAddressInARegister) {
  EXPECT_THAT(Rows(Undefined(16)), ElementsAre("0 end", "100 none"));
  EXPECT_THAT(Rows(Advance(1) + DefCfaOffset(0) + "\x09\x10\x05"), ElementsAre("0 rsp+1", "1 rsp+0 ra=r5", "100 none"));
}

TEST(UnwindTable, SignalFrame) {
  CieFields cie;
  cie.augmentation = "zRS";
  EXPECT_THAT(Rows(DefCfaExpression("\x77" + Sleb(160) + "\x06"), cie), ElementsAre("0 signal", "100 none"));
}

TEST(UnwindTable, GapsAndNeighbours) {
  EhFrame frames;
  uint64_t cie = frames.AddCie();
  frames.AddFde(cie, kCode + 0x40, 0x20, DefCfaOffset(24));  // not sorted
  frames.AddFde(cie, kCode + 0x10, 0x10, "");
  frames.AddFde(cie, kCode + 0x20, 0x10, DefCfaOffset(16));
  Table table = MustBuild(ImageWith(frames));
  EXPECT_THAT(Describe(table), ElementsAre("10 rsp+1", "20 rsp+2", "30 none", "40 rsp+3", "60 none"));
  EXPECT_EQ(Find(table.rows, 0xf), nullptr);
  EXPECT_EQ(Find(table.rows, 0x10)->pc, 0x10u);
  EXPECT_EQ(Find(table.rows, 0x1f)->pc, 0x10u);
  EXPECT_EQ(Find(table.rows, ~0u)->pc, 0x60u);
  EXPECT_EQ(Describe(RuleAt(table, kCode + 0x4f)), "rsp+3");
  EXPECT_EQ(RuleAt(table, kCode - 1), 0u);
  EXPECT_EQ(RuleAt(table, kCode + (uint64_t{1} << 32) + 0x10), 0u);
}

TEST(UnwindTable, OverlapsAreCut) {
  EhFrame frames;
  uint64_t cie = frames.AddCie();
  frames.AddFde(cie, kCode, 0x100, Advance(0x20) + DefCfaOffset(16));
  frames.AddFde(cie, kCode + 0x10, 0x10, DefCfaOffset(24));
  frames.AddFde(cie, kCode + 0x10, 0x20, DefCfaOffset(32));
  Table table = MustBuild(ImageWith(frames));
  EXPECT_THAT(Describe(table), ElementsAre("0 rsp+1", "10 rsp+3", "20 none"));
  EXPECT_EQ(table.statistics.overlapping, 2u);
}

TEST(UnwindTable, FunctionsOutsideOfTheCodeAreLeftOut) {
  EhFrame frames;
  uint64_t cie = frames.AddCie();
  frames.AddFde(cie, kCode - 0x10, 0x20, "");
  frames.AddFde(cie, kCode + kCodeSize - 0x10, 0x11, "");
  frames.AddFde(cie, 0, 0x10, "");
  frames.AddFde(cie, kCode + kCodeSize - 0x10, 0x10, "");
  Table table = MustBuild(ImageWith(frames));
  EXPECT_THAT(Describe(table), ElementsAre("ff0 rsp+1", "1000 none"));
  EXPECT_EQ(table.statistics.outside, 3u);
}

TEST(UnwindTable, EveryPointerEncoding) {
  struct {
    uint8_t encoding;
    std::string pointers;
  } const cases[] = {
      {0x00, BytesOf(kCode) + BytesOf(uint64_t{0x10})},
      {0x01, Uleb(kCode) + Uleb(0x10)},
      {0x03, BytesOf(uint32_t{kCode}) + BytesOf(0x10)},
      {0x04, BytesOf(kCode) + BytesOf(uint64_t{0x10})},
      {0x09, Sleb(kCode) + Sleb(0x10)},
      {0x0b, BytesOf(uint32_t{kCode}) + BytesOf(0x10)},
      {0x0c, BytesOf(kCode) + BytesOf(uint64_t{0x10})},
      {0x1a, BytesOf(static_cast<int16_t>(kCode - kFrames - 0x1e)) + BytesOf(int16_t{0x10})},
      {0x1c, BytesOf(kCode - kFrames - 0x1e) + BytesOf(uint64_t{0x10})},
  };
  for (const auto& test : cases) {
    EhFrame frames;
    CieFields cie;
    cie.augmentation_data = Byte(test.encoding);
    frames.AddFdeWith(frames.AddCie(cie), test.pointers + Byte(0));
    Table table = MustBuild(ImageWith(frames));
    EXPECT_THAT(Describe(table), ElementsAre("0 rsp+1", "10 none")) << int{test.encoding};
  }
  for (uint8_t encoding : {0x9b, 0x2b, 0x3b, 0x4b, 0x50, 0xff, 0x05}) {
    EXPECT_EQ(OneFunction("", {.augmentation_data = Byte(encoding)}).statistics.broken, 1u) << int{encoding};
  }
}

TEST(UnwindTable, Augmentations) {
  CieFields cie;
  cie.augmentation = "zPLRB";
  cie.augmentation_data = "\x9b" + BytesOf(0) + "\x1b\x1b";
  EXPECT_THAT(Rows("", cie), ElementsAre("0 rsp+1", "100 none"));
  cie.augmentation = "zR?";
  cie.augmentation_data = "\x1b???";
  EXPECT_THAT(Rows("", cie), ElementsAre("0 rsp+1", "100 none"));
  cie.augmentation = "eh";
  EXPECT_EQ(OneFunction("", cie).statistics.broken, 1u);
}

// CIE and FDE of .debug_frame, the FDE first.
std::string DebugFrame(bool wide, const CieFields& cie) {
  auto entry = [wide](uint64_t id, const std::string& body) {
    if (!wide) return BytesOf(static_cast<uint32_t>(body.size() + 4)) + BytesOf(static_cast<uint32_t>(id)) + body;
    return BytesOf(~uint32_t{0}) + BytesOf(uint64_t{body.size() + 8}) + BytesOf(id) + body;
  };
  std::string pointers = BytesOf(kCode + 0x80) + BytesOf(uint64_t{0x10});
  return entry(entry(0, pointers).size(), pointers) + entry(~uint64_t{0}, cie.Body());
}

TEST(UnwindTable, DebugFrame) {
  for (uint8_t version : {1, 3, 4}) {
    for (bool wide : {false, true}) {
      elf::ElfImage image = ImageWithCode();
      std::string bytes = DebugFrame(wide, {.version = version, .augmentation = "", .augmentation_data = ""});
      image.AddSection(".debug_frame", SHT_PROGBITS, bytes);
      EXPECT_THAT(Describe(MustBuild(image)), ElementsAre("80 rsp+1", "90 none")) << int{version} << wide;
    }
  }
}

TEST(UnwindTable, DebugFrameFillsWhatEhFrameLeavesOut) {
  EhFrame frames;
  uint64_t cie = frames.AddCie();
  frames.AddFde(cie, kCode, 0x10, "");
  std::string bytes =
      DebugFrame(false, {.version = 4, .augmentation = "", .instructions = DefCfa(7, 16) + Offset(16, 1)});
  elf::ElfImage image = ImageWith(frames);
  image.AddSection(".debug_frame", SHT_PROGBITS, bytes);
  EXPECT_THAT(Describe(MustBuild(image)), ElementsAre("0 rsp+1", "10 none", "80 rsp+2", "90 none"));

  frames.AddFde(cie, kCode + 0x80, 0x10, "");
  image = ImageWith(frames);
  image.AddSection(".debug_frame", SHT_PROGBITS, bytes);
  EXPECT_THAT(Describe(MustBuild(image)), ElementsAre("0 rsp+1", "10 none", "80 rsp+1", "90 none"));
}

// As a compressed section: `size` is that which its header tells.
std::string Compressed(const std::string& bytes, uint32_t type, uint64_t size) {
  const Elf64_Chdr header = {.ch_type = type, .ch_reserved = 0, .ch_size = size, .ch_addralign = 8};
  uLongf length = compressBound(bytes.size());
  std::string compressed(length, '\0');
  EXPECT_EQ(compress(reinterpret_cast<Bytef*>(compressed.data()), &length, reinterpret_cast<const Bytef*>(bytes.data()),
                     bytes.size()),
            Z_OK);
  compressed.resize(length);
  return elf::BytesOf(header) + compressed;
}

TEST(UnwindTable, CompressedDebugFrame) {
  const std::string plain =
      DebugFrame(false, {.version = 4, .augmentation = "", .instructions = DefCfa(7, 16) + Offset(16, 1)});
  const auto build = [](const std::string& section) {
    elf::ElfImage image = ImageWithCode();
    image.AddSection(".debug_frame", SHT_PROGBITS, section).sh_flags = SHF_COMPRESSED;
    return Build(image.Bytes());
  };
  const std::string good = Compressed(plain, ELFCOMPRESS_ZLIB, plain.size());
  EXPECT_THAT(Describe(*build(good)), ElementsAre("80 rsp+2", "90 none"));
  constexpr uint32_t kZstd = 2;
  EXPECT_THAT(build(Compressed(plain, kZstd, plain.size()))->rows, IsEmpty());
  for (const std::string& broken :
       {Compressed(plain, ELFCOMPRESS_ZLIB, plain.size() + 1), Compressed(plain, ELFCOMPRESS_ZLIB, plain.size() - 1),
        Compressed(plain, ELFCOMPRESS_ZLIB, kMaxFrameBytes), Compressed(plain, ELFCOMPRESS_ZLIB, ~uint64_t{0}),
        good.substr(0, good.size() - 4), good.substr(0, 8)}) {
    EXPECT_TRUE(absl::IsInvalidArgument(build(broken).status())) << build(broken).status();
  }
}

// Go's code is what no function of .eh_frame covers; Go's .debug_frame does not know of the stack that C is called on.
TEST(UnwindTable, GoHasFramePointers) {
  for (const char* name : {".gopclntab", ".data.rel.ro.gopclntab"}) {
    elf::ElfImage image = ImageWithCode();
    image.AddSection(name, SHT_PROGBITS, "lines");
    image.AddSection(".debug_frame", SHT_PROGBITS,
                     DebugFrame(false, {.version = 4, .augmentation = "", .augmentation_data = ""}));
    EXPECT_THAT(Describe(MustBuild(image)), ElementsAre("0 frame pointer"));

    for (const uint64_t start : {0, 0x40}) {
      EhFrame frames;
      frames.AddFde(frames.AddCie(), kCode + start, 0x10, "");
      image = ImageWith(frames);
      image.AddSection(name, SHT_PROGBITS, "lines");
      const std::vector<std::string> rows = Describe(MustBuild(image));
      if (start == 0) {
        EXPECT_THAT(rows, ElementsAre("0 rsp+1", "10 frame pointer"));
      } else {
        EXPECT_THAT(rows, ElementsAre("0 frame pointer", "40 rsp+1", "50 frame pointer"));
      }
    }
  }
}

// The rows of an image with this code at these places in its code.
std::vector<std::string> RowsWithCode(const elf::ElfImage& image, absl::string_view code, std::vector<size_t> places) {
  std::string bytes = image.Bytes();
  bytes.resize(std::max<size_t>(bytes.size(), 0x1000 + kCodeSize));
  for (const size_t place : places)
    std::copy(code.begin(), code.end(), bytes.begin() + 0x1000 + static_cast<ptrdiff_t>(place));
  absl::StatusOr<Table> table = Build(bytes);
  EXPECT_TRUE(table.ok()) << table.status();
  return table.ok() ? Describe(*table) : std::vector<std::string>();
}

// musl's libc has no call frames where signal handlers return to, and few elsewhere.
TEST(UnwindTable, EndsOfCallsAreKnownByTheirCode) {
  const absl::string_view code("\x48\xc7\xc0\x0f\0\0\0\x0f\x05", 9);
  EhFrame frames;
  frames.AddFde(frames.AddCie(), kCode + 0x40, 0x20, "");
  const elf::ElfImage image = ImageWith(frames);
  EXPECT_THAT(RowsWithCode(image, code, {}), ElementsAre("40 rsp+1", "60 none"));
  // A return address is looked for one byte before it.
  EXPECT_THAT(
      RowsWithCode(image, code, {0x10, 0x80, 0xff0}),
      ElementsAre("f signal", "19 none", "40 rsp+1", "60 none", "7f signal", "89 none", "fef signal", "ff9 none"));
  // What the file says of its code holds.
  EXPECT_THAT(RowsWithCode(image, code, {0x48, 0x3a, 0x5c}), ElementsAre("40 rsp+1", "60 none"));
  EXPECT_THAT(RowsWithCode(image, code, {0x37, 0x61}), ElementsAre("36 signal", "40 rsp+1", "60 signal", "6a none"));
  EXPECT_THAT(RowsWithCode(image, absl::string_view("\x48\xc7\xc0\x0d\0\0\0\x0f\x05", 9), {0x10}),
              ElementsAre("40 rsp+1", "60 none"));
  EXPECT_THAT(RowsWithCode(ImageWithCode(), code, {0x10}), IsEmpty()) << "walks follow frame pointers there";

  // Where a stack of Boost.Context begins.
  const absl::string_view exit("\x48\x31\xff\xe8\x49\xfe\xff\xff\xf4", 9);
  EXPECT_THAT(RowsWithCode(image, exit, {0x80}), ElementsAre("40 rsp+1", "60 none", "7f end", "89 none"));
  EXPECT_THAT(RowsWithCode(image, exit, {0x48}), ElementsAre("40 rsp+1", "60 none"));
  EXPECT_THAT(RowsWithCode(image, exit.substr(0, 8), {0x80}), ElementsAre("40 rsp+1", "60 none"));

  elf::ElfImage go = ImageWithCode();
  go.AddSection(".gopclntab", SHT_PROGBITS, "lines");
  EXPECT_THAT(RowsWithCode(go, code, {0x10}), ElementsAre("0 frame pointer", "f signal", "19 frame pointer"));
}

TEST(UnwindTable, WithoutSections) {
  EhFrame frames;
  frames.AddFde(frames.AddCie(), kCode, 0x10, "");
  EXPECT_THAT(Describe(MustBuild(ImageWithHeader(frames, 1))), ElementsAre("0 rsp+1", "10 none"));
  frames.Terminate();
  EXPECT_THAT(Describe(MustBuild(ImageWithHeader(frames, 100))), ElementsAre("0 rsp+1", "10 none"));
}

TEST(UnwindTable, NothingToRead) {
  EXPECT_THAT(MustBuild(ImageWithCode()).rows, IsEmpty());
  EXPECT_THAT(MustBuild(ImageWith(EhFrame())).rows, IsEmpty());
  EXPECT_THAT(Build(elf::ElfImage().Bytes()).status().message(), HasSubstr("no executable code"));
}

TEST(UnwindTable, BrokenFunctionsAreSkipped) {
  std::string too_deep;
  for (uint64_t i = 0; i <= kMaxRememberedStates; ++i) too_deep += kRememberState;
  std::string huge = Uleb(~uint64_t{0});
  for (const std::string& instructions :
       {std::string("\x3f"), std::string("\x1d"), std::string("\x0c"), std::string("\x0e\x80"), kRestoreState, too_deep,
        "\x0f" + huge, "\x10\x06" + huge, "\x05\x06" + Uleb(uint64_t{1} << 62), "\x0e" + std::string(20, '\xff'),
        Advance(4) + "\x01" + BytesOf(-0x10000)}) {
    EhFrame frames;
    uint64_t cie = frames.AddCie();
    frames.AddFde(cie, kCode, 0x10, "");
    frames.AddFde(cie, kCode + 0x10, 0x10, Advance(4) + DefCfaOffset(16) + Advance(4) + instructions);
    frames.AddFde(cie, kCode + 0x20, 0x10, "");
    Table table = MustBuild(ImageWith(frames));
    EXPECT_THAT(Describe(table), ElementsAre("0 rsp+1", "10 none", "20 rsp+1", "30 none"));
    EXPECT_EQ(table.statistics.broken, 1u);
  }
}

TEST(UnwindTable, BrokenCiesTakeTheirFunctionsAlong) {
  for (const CieFields& cie :
       {CieFields{.version = 2}, CieFields{.version = 5}, CieFields{.augmentation_data = ""},
        CieFields{.return_address = 17}, CieFields{.instructions = "\x3f"}, CieFields{.instructions = Advance(1)},
        CieFields{.augmentation = "zP", .augmentation_data = "\x2b"}}) {
    EXPECT_EQ(OneFunction("", cie).statistics.broken, 1u);
  }
}

TEST(UnwindTable, PointersToCiesThatAreNone) {
  EhFrame frames;
  uint64_t cie = frames.AddCie();
  uint64_t function = frames.AddFde(cie, kCode, 0x10, "");
  frames.AddFde(frames.bytes.size(), kCode + 0x10, 0x10, "");  // itself
  frames.AddFde(function, kCode + 0x20, 0x10, "");
  frames.AddFde(cie + 4, kCode + 0x30, 0x10, "");
  frames.AddFde(cie - 0x1000, kCode + 0x40, 0x10, "");
  frames.AddFde(frames.bytes.size() + 0x1000, kCode + 0x50, 0x10, "");
  Table table = MustBuild(ImageWith(frames));
  EXPECT_THAT(Describe(table), ElementsAre("0 rsp+1", "10 none"));
  EXPECT_EQ(table.statistics.broken, 5u);
}

TEST(UnwindTable, HugeRanges) {
  for (uint64_t start : {kCode, uint64_t{0}, ~uint64_t{0}}) {
    for (uint64_t size : {~uint64_t{0}, uint64_t{1} << 63, uint64_t{1} << 32}) {
      EhFrame frames;
      CieFields cie;
      cie.augmentation_data = Byte(0);
      frames.AddFdeWith(frames.AddCie(cie), BytesOf(start) + BytesOf(size) + Byte(0));
      Table table = MustBuild(ImageWith(frames));
      EXPECT_THAT(table.rows, IsEmpty());
      EXPECT_EQ(table.statistics.broken + table.statistics.outside, 1u);
    }
  }
}

TEST(UnwindTable, HopelessFiles) {
  EhFrame frames;
  uint64_t cie = frames.AddCie();
  const uint64_t function = frames.AddFde(cie, kCode, 0x10, "");
  constexpr size_t kLengthBytes = 4;
  for (size_t cut = 1; cut < frames.bytes.size(); ++cut) {
    EhFrame part;
    part.bytes = frames.bytes.substr(0, cut);
    auto table = Build(ImageWith(part).Bytes());
    // Less than a length, at the beginning and behind the CIE, is the end.
    const bool is_whole = cut < kLengthBytes || (cut >= function && cut < function + kLengthBytes);
    EXPECT_EQ(table.ok(), is_whole) << cut;
    EXPECT_THAT(table.status().message(), HasSubstr(is_whole ? "" : "is cut short"));
  }
  for (uint32_t more : {1u, 0xfffff000u}) {
    EhFrame broken = frames;
    broken.AddEntry(BytesOf(uint32_t{0}) + CieFields().Body(), more);
    EXPECT_TRUE(absl::IsInvalidArgument(Build(ImageWith(broken).Bytes()).status()));
  }
  elf::ElfImage image = ImageWithCode();
  image.AddSection(".eh_frame", SHT_PROGBITS, frames.bytes, kFrames).sh_size = uint64_t{1} << 40;
  EXPECT_TRUE(absl::IsInvalidArgument(Build(image.Bytes()).status()));
  image = ImageWithCode();
  image.AddSegment(PT_GNU_EH_FRAME, PF_R, 0, 64, kFrames);
  EXPECT_TRUE(absl::IsInvalidArgument(Build(image.Bytes()).status()));
}

// Many entries that each point at one long CIE: its instructions are not run anew for each.
TEST(UnwindTable, TimeIsLinear) {
  constexpr size_t kEntries = 200'000;
  std::string images[2];
  for (size_t which : {0, 1}) {
    const size_t part = which == 0 ? kGrowth : 1;
    EhFrame frames;
    CieFields fields;
    fields.instructions += std::string((size_t{1} << 20) / part, '\0');
    uint64_t cie = frames.AddCie(fields);
    for (size_t i = 0; i < kEntries / part; ++i) {
      frames.AddFde(cie, kCode + i % kCodeSize, 1, DefCfaOffset(8 + i % 8 * 8));
    }
    images[which] = ImageWith(frames).Bytes();
  }
  ExpectLinear([&](size_t which) {
    const auto table = Build(images[which]);
    ASSERT_TRUE(table.ok()) << table.status();
    const size_t entries = kEntries / (which == 0 ? kGrowth : 1);
    EXPECT_EQ(table->statistics.functions, kCodeSize);
    EXPECT_EQ(table->statistics.overlapping, entries - kCodeSize);
  });
}

TEST(UnwindTable, TooManyCies) {
  EhFrame frames;
  for (uint64_t i = 0; i <= kMaxCies; ++i) frames.AddCie();
  EXPECT_THAT(Build(ImageWith(frames).Bytes()).status().message(), HasSubstr("CIEs"));
}

}  // namespace
}  // namespace heaptap::unwind
