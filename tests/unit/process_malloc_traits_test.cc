// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/unit/elf_image.h"
#include "tests/unit/support/folder.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/process/malloc_traits.h"

namespace heaptap::process {
namespace {

MallocTraits TraitsOf(const std::string& path) {
  const base::FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const absl::StatusOr<elf::File> file = elf::File::Open(fd.get());
  EXPECT_TRUE(file.ok()) << path << ": " << file.status();
  return file.ok() ? ReadMallocTraits(*file) : MallocTraits{};
}

TEST(MallocTraits, LibrariesOfDebian) {
  const std::string folder = "/usr/lib/x86_64-linux-gnu/";
  for (const auto& [name, kind] :
       {std::pair("libc.so.6", MallocKind::kGlibc),
        {"libjemalloc.so.2", MallocKind::kJemalloc},
        {"libtcmalloc_minimal.so.4", MallocKind::kTcmalloc},
        {access((folder + "libmimalloc.so.3").c_str(), R_OK) == 0 ? "libmimalloc.so.3" : "libmimalloc.so.2",
         MallocKind::kMimalloc}}) {
    const MallocTraits traits = TraitsOf(folder + name);
    EXPECT_EQ(traits.exports_malloc, 1) << name;
    EXPECT_EQ(traits.kind, kind) << name;
    EXPECT_EQ(traits.is_go, 0) << name;
  }
  EXPECT_EQ(TraitsOf(folder + "libm.so.6").exports_malloc, 0);
  EXPECT_EQ(TraitsOf(folder + "libm.so.6").kind, MallocKind::kOther);
}

TEST(MallocTraits, Musl) {
  const MallocTraits traits = TraitsOf("/lib/ld-musl-x86_64.so.1");
  EXPECT_EQ(traits.exports_malloc, 1);
  EXPECT_EQ(traits.kind, MallocKind::kMusl);
}

class Compiled : public ::testing::Test {
 protected:
  MallocTraits Compile(const std::string& source, const std::string& flags) {
    std::ofstream(folder_ / "main.c") << source;
    const std::string path = folder_ / "main";
    EXPECT_EQ(system(absl::StrCat("gcc ", flags, " ", path, ".c -o ", path).c_str()), 0);
    return TraitsOf(path);
  }
  TemporaryFolder folder_;
};

constexpr char kPlain[] = "int main(void) { return 0; }\n";
constexpr char kOwn[] =
    "void *malloc(unsigned long n) { return (void *)n; }\nvoid free(void *p) { (void)p; }\nint main(void) { return 0; "
    "}\n";

// A program has a sanitizer's malloc if the runtime is linked statically, as clang does by default.
TEST_F(Compiled, Sanitizers) {
  const MallocTraits shared = Compile(kPlain, "-fsanitize=address");
  EXPECT_EQ(shared.exports_malloc, 0);
  EXPECT_EQ(shared.kind, MallocKind::kOther) << "that is libasan.so's";
  for (const auto& [flags, kind] : {std::pair("-fsanitize=address -static-libasan", MallocKind::kAddressSanitizer),
                                    {"-fsanitize=thread -static-libtsan", MallocKind::kThreadSanitizer},
                                    {"-fsanitize=leak -static-liblsan", MallocKind::kLeakSanitizer}}) {
    const MallocTraits traits = Compile(kPlain, flags);
    EXPECT_EQ(traits.exports_malloc, 1) << flags;
    EXPECT_EQ(traits.kind, kind) << flags;
    EXPECT_TRUE(IsSanitizer(traits.kind)) << flags;
  }
  EXPECT_FALSE(IsSanitizer(MallocKind::kMimalloc));
}

TEST_F(Compiled, Programs) {
  const MallocTraits plain = Compile(kPlain, "");
  EXPECT_EQ(plain.has_interpreter, 1);
  EXPECT_EQ(plain.exports_malloc + plain.has_own_malloc, 0);
  const MallocTraits is_static = Compile(kPlain, "-static");
  EXPECT_EQ(is_static.has_interpreter, 0);
  EXPECT_EQ(is_static.has_own_malloc, 1);
  EXPECT_EQ(is_static.kind, MallocKind::kGlibc);
  const MallocTraits exported = Compile(kOwn, "-fno-builtin -rdynamic");
  EXPECT_EQ(exported.exports_malloc, 1);
  EXPECT_EQ(exported.has_own_malloc, 0);
  EXPECT_EQ(Compile(kOwn, "-fno-builtin -fvisibility=hidden").has_own_malloc, 1);
  const MallocTraits prefixed = Compile(
      "int je_malloc(void) { return 0; }\nint je_mallctl(void) { return 0; }\n"
      "int main(void) { return 0; }\n",
      "");
  EXPECT_EQ(prefixed.has_own_malloc, 1);
  EXPECT_EQ(prefixed.kind, MallocKind::kJemalloc);
  const MallocTraits go =
      Compile(absl::StrCat("__attribute__((section(\".go.buildinfo\"))) int info = 1;\n", kPlain), "");
  EXPECT_EQ(go.is_go, 1);
}

// Names beyond the end of their table, and a table that is larger than the file.
TEST(MallocTraits, BrokenTables) {
  elf::ElfImage image;
  image.AddSection(".dynstr", SHT_STRTAB, std::string("\0malloc\0fre", 11));
  std::string symbols = elf::BytesOf(Elf64_Sym{});
  for (const uint32_t name : {1u, 8u, 0xffffffffu}) {
    Elf64_Sym symbol = {};
    symbol.st_name = name;
    symbol.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
    symbol.st_shndx = 1;
    symbols += elf::BytesOf(symbol);
  }
  image.AddSection(".dynsym", SHT_DYNSYM, symbols);
  base::FileDescriptor fd = elf::FileWith(image.Bytes());
  absl::StatusOr<elf::File> file = elf::File::Open(fd.get());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(ReadMallocTraits(*file).exports_malloc, 0);
  image.AddSection(".symtab", SHT_SYMTAB, symbols).sh_size = uint64_t{1} << 40;
  image.AddSection(".strtab", SHT_STRTAB, "x").sh_size = uint64_t{1} << 40;
  fd = elf::FileWith(image.Bytes());
  file = elf::File::Open(fd.get());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(ReadMallocTraits(*file).has_own_malloc, 1) << "what .dynsym has is kept";
}

}  // namespace
}  // namespace heaptap::process
