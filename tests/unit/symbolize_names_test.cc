// SPDX-License-Identifier: Apache-2.0
//
// Tests names from invented symbol tables, demangling, and the answers of confined processes.
#include <elf.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/elf_image.h"
#include "userspace/elf/mappings.h"
#include "userspace/symbolize/answer.h"
#include "userspace/symbolize/debug_files.h"
#include "userspace/symbolize/demangle.h"
#include "userspace/symbolize/function_names.h"

namespace heaptap::symbolize {
namespace {

using ::testing::ElementsAre;

constexpr unsigned char kGlobal = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
constexpr unsigned char kWeak = ELF64_ST_INFO(STB_WEAK, STT_FUNC);
constexpr unsigned char kLocal = ELF64_ST_INFO(STB_LOCAL, STT_FUNC);
constexpr unsigned char kLabel = ELF64_ST_INFO(STB_LOCAL, STT_NOTYPE);
constexpr unsigned char kObject = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);

// A file with code at 0x1000 (section 1) and at 0x2000 (section 2), and data (section 3).
class Table {
 public:
  Table& Add(const std::string& name, unsigned char info, uint64_t start, uint64_t size, Elf64_Half section = 1) {
    const Elf64_Sym symbol = {.st_name = static_cast<Elf64_Word>(names_.size()),
                              .st_info = info,
                              .st_other = 0,
                              .st_shndx = section,
                              .st_value = start,
                              .st_size = size};
    symbols_ += elf::BytesOf(symbol);
    names_ += name + '\0';
    return *this;
  }

  std::vector<std::string> Find(const std::vector<uint64_t>& addresses) const {
    elf::ElfImage image;
    constexpr uint64_t kCode = SHF_ALLOC | SHF_EXECINSTR;
    image.AddSection(".text", SHT_PROGBITS, std::string(0x1000, 'x'), 0x1000).sh_flags = kCode;
    image.AddSection(".fini", SHT_PROGBITS, std::string(0x10, 'x'), 0x2000).sh_flags = kCode;
    image.AddSection(".data", SHT_PROGBITS, std::string(0x10, 'x'), 0x3000).sh_flags = SHF_ALLOC;
    image.AddSection(".symtab", SHT_SYMTAB, symbols_);
    image.AddSection(".strtab", SHT_STRTAB, names_);
    const base::FileDescriptor fd = elf::FileWith(image.Bytes());
    std::vector<std::string> names(addresses.size());
    const elf::File file = *elf::File::Open(fd.get());
    EXPECT_TRUE(FindFunctionNames(file, SymbolTable::kStatic, addresses, names).ok());
    EXPECT_TRUE(absl::IsNotFound(FindFunctionNames(file, SymbolTable::kDynamic, addresses, names)));
    return names;
  }

 private:
  std::string symbols_;
  std::string names_ = std::string(1, '\0');
};

TEST(FunctionNames, HoldsFromStartToEnd) {
  Table table;
  table.Add("b", kGlobal, 0x1100, 0x10).Add("a", kLocal, 0x1000, 0x10);
  EXPECT_THAT(table.Find({0xfff, 0x1000, 0x100f, 0x1010, 0x1100, 0x110f, 0x1110, ~uint64_t{0}}),
              ElementsAre("", "a", "a", "", "b", "b", "", ""));
}

TEST(FunctionNames, TheInnermostCounts) {
  Table table;
  table.Add("outer", kGlobal, 0x1000, 0x100).Add("inner", kLocal, 0x1010, 0x10).Add("last", kLocal, 0x10f0, 0x10);
  EXPECT_THAT(table.Find({0x1000, 0x1010, 0x1020, 0x10ef, 0x10f0, 0x1100}),
              ElementsAre("outer", "inner", "outer", "outer", "last", ""));
}

TEST(FunctionNames, GlobalBeforeWeakBeforeLocalBeforeLater) {
  Table table;
  table.Add("local", kLocal, 0x1000, 8).Add("weak", kWeak, 0x1000, 8).Add("global", kGlobal, 0x1000, 8);
  table.Add("first", kWeak, 0x1100, 8).Add("second", kWeak, 0x1100, 8).Add("third", kLocal, 0x1100, 8);
  EXPECT_THAT(table.Find({0x1001, 0x1101}), ElementsAre("global", "first"));
}

TEST(FunctionNames, WithoutSizeUpToTheNextSymbolOrTheEndOfTheSection) {
  Table table;
  table.Add("start", kGlobal, 0x1000, 0).Add("sized", kGlobal, 0x1100, 0x10).Add("label", kLabel, 0x1108, 0);
  table.Add("fini", kGlobal, 0x2000, 0, 2);
  EXPECT_THAT(table.Find({0x1000, 0x10ff, 0x1100, 0x1108, 0x110f, 0x1110, 0x2000, 0x200f, 0x2010}),
              ElementsAre("start", "start", "sized", "sized", "sized", "label", "fini", "fini", ""));
}

TEST(FunctionNames, OnlyDefinedCode) {
  Table table;
  table.Add("object", kObject, 0x1000, 0x10).Add("undefined", kGlobal, 0x1000, 0x10, SHN_UNDEF);
  table.Add("data", kGlobal, 0x3000, 0x10, 3).Add("absolute", kGlobal, 0x1000, 0x10, SHN_ABS);
  EXPECT_THAT(table.Find({0x1000, 0x3000}), ElementsAre("", ""));
}

TEST(FunctionNames, LongNamesAreCutAndAnyByteIsKept) {
  Table table;
  const std::string odd = "\n\x1b[31m\xff;";
  table.Add(std::string(300, 'x'), kGlobal, 0x1000, 1).Add(std::string(1 << 20, 'y'), kGlobal, 0x1001, 1);
  table.Add(odd, kGlobal, 0x1002, 1);
  EXPECT_THAT(table.Find({0x1000, 0x1001, 0x1002}),
              ElementsAre(std::string(300, 'x'), std::string(kMaxNameBytes, 'y'), odd));
}

TEST(FunctionNames, SizesThatWrapAround) {
  Table table;
  table.Add("wraps", kGlobal, 0x1000, ~uint64_t{0}).Add("good", kGlobal, 0x1004, 4);
  EXPECT_THAT(table.Find({0x1003, 0x1004}), ElementsAre("", "good"));
}

TEST(Demangle, KnowsCxxAndRust) {
  EXPECT_EQ(Demangle("main"), "main");
  EXPECT_EQ(Demangle(""), "");
  EXPECT_EQ(Demangle("_start"), "_start");
  EXPECT_EQ(Demangle("_Z3fooi"), "foo(int)");
  EXPECT_EQ(Demangle("_ZN3FooC4Ev"), "Foo::Foo()");
  EXPECT_EQ(Demangle("_ZN12_GLOBAL__N_13fooEPKc.constprop.0"),
            "(anonymous namespace)::foo(char const*) [clone .constprop.0]");
  // The forms of Rust: legacy and v0 (RFC 2603).
  EXPECT_EQ(Demangle("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"), "core::fmt::Write::write_fmt");
  EXPECT_EQ(
      Demangle("_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$3bar17h930b740aa94f1d3aE"),
      "<Test + 'static as foo::Bar<Test>>::bar");
  EXPECT_EQ(Demangle("_RNvNtCs1234_7mycrate3foo3bar"), "mycrate::foo::bar");
  EXPECT_EQ(Demangle("_RINvNtC3std3mem8align_ofjE"), "std::mem::align_of::<usize>");
  // Not quite mangled names.
  EXPECT_EQ(Demangle("_Z"), "_Z");
  EXPECT_EQ(Demangle("_R\xff"), "_R\xff");
}

TEST(DebugLinks, ThereAndBack) {
  const DebugLinks links = {.build_id = "id",
                            .link_name = "x.debug",
                            .link_checksum = 7,
                            .shared_name = "/y",
                            .shared_build_id = "other",
                            .has_debug_information = true};
  const absl::StatusOr<DebugLinks> decoded = DecodeDebugLinks(Encode(links));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, links);
}

// A reader may have been taken over.
TEST(DebugLinks, HostileBytes) {
  // A known field of another type counts as an unknown one.
  EXPECT_EQ(*DecodeDebugLinks(absl::string_view("\x08\x01", 2)), DebugLinks());
  // A field without a value, at the end.
  EXPECT_FALSE(DecodeDebugLinks(absl::string_view("\x30", 1)).ok());
  // A text that ends too early, and a build-id that is too long.
  EXPECT_FALSE(DecodeDebugLinks(absl::string_view("\x0a\x7f", 2)).ok());
  EXPECT_FALSE(DecodeDebugLinks(Encode(DebugLinks{.build_id = std::string(elf::kMaxBuildIdBytes + 1, 'x')})).ok());
}

TEST(Answer, LaterReplacesEarlier) {
  AnswerWriter writer;
  const uint32_t mangled = writer.TextNumber("_Z1fv");
  writer.WriteFrames(1, {{.function = mangled, .file = 0, .line = 0, .is_inline = 0}});
  writer.WriteStageDone(Stage::kSymbols);
  const uint32_t plain = writer.TextNumber("f()");
  const uint32_t file = writer.TextNumber("f.cc");
  EXPECT_EQ(writer.TextNumber("_Z1fv"), mangled);
  writer.WriteFrames(1, {{.function = plain, .file = file, .line = 7, .is_inline = 1},
                         {.function = plain, .file = 0, .line = 0, .is_inline = 0}});
  const std::string bytes = writer.TakeBytes();

  Names names;
  std::vector<Frames> frames(2);
  EXPECT_EQ(ReadAnswer(bytes, names, frames).done, Stage::kSymbols);
  EXPECT_TRUE(frames[0].empty());
  const Name f("f()");
  EXPECT_THAT(frames[1], ElementsAre(Frame{.function = f, .file = Name("f.cc"), .line = 7, .is_inline = true},
                                     Frame{.function = f}));
  EXPECT_EQ(frames[1][0].function.view().data(), frames[1][1].function.view().data()) << "one copy";

  // Truncated anywhere, it can still be read.
  for (size_t size = 0; size < bytes.size(); size++) {
    std::vector<Frames> some(2);
    ReadAnswer(bytes.substr(0, size), names, some);
    EXPECT_TRUE(some[1].empty() || some[1].size() == 1);
  }
  // With more addresses than were asked for, and with references to missing texts.
  std::vector<Frames> one(1);
  ReadAnswer(bytes, names, one);
  EXPECT_TRUE(one[0].empty());
  AnswerWriter liar;
  liar.WriteFrames(0, {{.function = 1000, .file = 7, .line = 3, .is_inline = 0}});
  ReadAnswer(liar.TakeBytes(), names, one);
  EXPECT_THAT(one[0], ElementsAre(Frame{.line = 3}));
}

TEST(Answer, Gaps) {
  Names names;
  std::vector<Frames> frames;
  AnswerWriter writer;
  EXPECT_EQ(ReadAnswer(writer.TakeBytes(), names, frames).gap, Gap::kNone);
  writer.WriteGap(Gap::kSplit);
  writer.WriteStageDone(Stage::kDwarf);
  const AnswerEnd end = ReadAnswer(writer.TakeBytes(), names, frames);
  EXPECT_EQ(end.gap, Gap::kSplit);
  EXPECT_EQ(end.done, Stage::kDwarf);
  writer.WriteGap(static_cast<Gap>(3));
  writer.WriteStageDone(Stage::kDwarf);
  const AnswerEnd liar = ReadAnswer(writer.TakeBytes(), names, frames);
  EXPECT_EQ(liar.gap, Gap::kNone) << "an unknown one is a mistake";
  EXPECT_EQ(liar.done, Stage::kNone);
}

}  // namespace
}  // namespace heaptap::symbolize
