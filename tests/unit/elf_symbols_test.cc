// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <initializer_list>
#include <string>

#include "gtest/gtest.h"
#include "tests/unit/elf_image.h"
#include "userspace/elf/file.h"
#include "userspace/elf/symbols.h"

namespace heaptap::elf {
namespace {

constexpr uint64_t kHuge = uint64_t{512} << 20;

// Symbols from the second on are data, with these names.
std::string Symbols(std::initializer_list<uint32_t> names) {
  std::string table = BytesOf(Elf64_Sym{});
  for (const uint32_t name : names) {
    Elf64_Sym symbol = {};
    symbol.st_name = name;
    symbol.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);
    symbol.st_shndx = 1;
    symbol.st_value = 0x1000 + name;
    table += BytesOf(symbol);
  }
  return table;
}

TEST(FindDataSymbol, ByItsWholeName) {
  ElfImage image;
  image.AddSection(".dynstr", SHT_STRTAB, std::string("\0first\0firstborn\0", 17));
  image.AddSection(".dynsym", SHT_DYNSYM, Symbols({7, 1}));
  const base::FileDescriptor file = FileWith(image.Bytes());
  EXPECT_EQ(FindDataSymbol(file.get(), "first").value_or(0), 0x1001);
  EXPECT_EQ(FindDataSymbol(file.get(), "firstborn").value_or(0), 0x1007);
  EXPECT_TRUE(absl::IsNotFound(FindDataSymbol(file.get(), "fir").status()));
}

// A file of some kilobytes on disk whose headers claim half a gibibyte of each.
TEST(FindDataSymbol, ASparseFileCostsNoMemory) {
  ElfImage image;
  Elf64_Shdr& strings = image.AddSection(".dynstr", SHT_STRTAB, std::string("\0first\0", 7));
  strings.sh_size = kHuge;
  Elf64_Shdr& symbols = image.AddSection(".dynsym", SHT_DYNSYM, Symbols({1}));
  symbols.sh_size = kHuge;
  const base::FileDescriptor file = FileWith(image.Bytes());
  ASSERT_EQ(ftruncate(file.get(), 4 * kHuge), 0);
  rusage before;
  ASSERT_EQ(getrusage(RUSAGE_SELF, &before), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(FindDataSymbol(file.get(), "first").status()));
  rusage after;
  ASSERT_EQ(getrusage(RUSAGE_SELF, &after), 0);
  constexpr long kMostKibibytes = 64 << 10;
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, kMostKibibytes);
}

TEST(FileRead, ASparseFileHasNoMoreThanItsBlocks) {
  ElfImage image;
  const base::FileDescriptor file = FileWith(image.Bytes());
  ASSERT_EQ(ftruncate(file.get(), 2 * kHuge), 0);
  struct stat status;
  ASSERT_EQ(fstat(file.get(), &status), 0);
  ASSERT_GT(status.st_blocks, 0);
  absl::StatusOr<File> opened = File::Open(file.get());
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_TRUE(opened->Read(0, 4096, kHuge, "a page").ok());
  EXPECT_TRUE(absl::IsInvalidArgument(opened->Read(0, kHuge, kHuge, "much").status()));
}

}  // namespace
}  // namespace heaptap::elf
