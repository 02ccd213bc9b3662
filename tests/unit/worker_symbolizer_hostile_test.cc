// SPDX-License-Identifier: Apache-2.0
//
// Tests files made to harm their reader, and the limits of the cache.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/elf_image.h"
#include "tests/unit/symbolize_program.h"

namespace heaptap::symbolize {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A program with one function f(int) of C++, that inlines another, and its symbols.
class Program {
 public:
  explicit Program(const std::string& name = "program") : path(folder / name) {
    WriteFile(folder / "program.cc",
              "static inline int g(int n) { return n * n; }\nint f(int n) { return g(n) + g(n + 1); }\n");
    Shell(absl::StrCat("g++ -g -O2 -shared -fPIC -o ", path, " ", folder / "program.cc"));
    for (const Symbol& function : FunctionsOf(path)) {
      if (function.name == "f(int)") addresses = AddressesIn({function}, 1);
    }
  }
  TemporaryFolder folder;
  std::string path;
  std::vector<uint64_t> addresses;
};

TEST(Hostile, NotAProgram) {
  TemporaryFolder folder;
  worker::Crews crews_of_symbolizer;
  worker::Symbolizer symbolizer(crews_of_symbolizer, {});
  for (const std::string& bytes : {std::string(), std::string("\177ELF"), std::string(10000, 'x')}) {
    WriteFile(folder / "file", bytes);
    EXPECT_THAT(Symbolize(symbolizer, folder / "file", {0, 1, 0x1000, ~uint64_t{0}}), Each(IsEmpty()));
  }
  EXPECT_THAT(Symbolize(symbolizer, folder / "nowhere", {0, 1}), Each(IsEmpty()));
  EXPECT_THAT(Symbolize(symbolizer, "/proc/self/exe", {}), IsEmpty());
}

// A sparse file of 10 GiB whose sections of symbols and debug information all claim its whole size. However long it
// takes, memory is limited, and the test ends.
TEST(Hostile, LargeAndHollow) {
  constexpr uint64_t kSize = uint64_t{10} << 30;
  elf::ElfImage image;
  image.AddSegment(PT_LOAD, PF_R | PF_X, 0, kSize, 0x1000);
  image.AddSection(".text", SHT_PROGBITS, "x", 0x1000).sh_flags = SHF_ALLOC | SHF_EXECINSTR;
  for (const char* name : {".symtab", ".strtab", ".dynsym", ".dynstr", ".debug_info", ".debug_abbrev", ".debug_line",
                           ".debug_str", ".gnu_debuglink", ".gnu_debugaltlink", ".note.gnu.build-id"}) {
    const uint32_t type = absl::StrContains(name, ".note") ? SHT_NOTE : SHT_PROGBITS;
    image.AddSection(name, type, "").sh_size = kSize - (1 << 20);
  }
  TemporaryFolder folder;
  WriteFile(folder / "file", image.Bytes());
  ASSERT_EQ(truncate((folder / "file").c_str(), kSize), 0);
  worker::Crews crews_of_symbolizer;
  worker::Symbolizer symbolizer(crews_of_symbolizer, {});
  EXPECT_THAT(Symbolize(symbolizer, folder / "file", {0x1000, 0x1001, 0x1000000}), Each(IsEmpty()));
}

// Debug information with random changes: whatever libdw does with it, the names stay.
TEST(Hostile, BrokenDebugInformation) {
  Program program;
  const std::string good = ReadFile(program.path);
  std::vector<std::pair<uint64_t, uint64_t>> debug_sections;
  {
    base::FileDescriptor fd(open(program.path.c_str(), O_RDONLY | O_CLOEXEC));
    const absl::StatusOr<elf::File> file = elf::File::Open(fd.get());
    ASSERT_TRUE(file.ok());
    for (const elf::Section& section : file->sections()) {
      if (absl::StartsWith(section.name, ".debug_")) debug_sections.emplace_back(section.offset, section.size);
    }
  }
  ASSERT_GE(debug_sections.size(), 5u);
  std::mt19937 random(20261121);
  size_t changed = 0;
  // One crew for all rounds; the start of a worker would take most of the time.
  worker::Crews crews_of_symbolizer;
  for (int round = 0; round < 150; round++) {
    std::string bad = good;
    for (int patch = 0; patch < 20; patch++) {
      const auto& [offset, size] = debug_sections[random() % debug_sections.size()];
      bad[offset + random() % size] = static_cast<char>(random() % 4 == 0 ? 0xff : random());
    }
    WriteFile(program.folder / "bad", bad);
    worker::Symbolizer symbolizer(crews_of_symbolizer, {.limits = {.memory_bytes = 64 << 20}});
    for (const Frames& frames : Symbolize(symbolizer, program.folder / "bad", program.addresses)) {
      ASSERT_THAT(frames, Not(IsEmpty()));
      changed += frames.back().function.view() != "f(int)" || frames.back().line != 2;
    }
  }
  EXPECT_GT(changed, 0u) << "the patches must have hit something";
}

// A short name that stands for a text of 2^60 bytes: it stays mangled, and is not tried again.
TEST(Hostile, NameThatGrowsWithoutBound) {
  std::string name = "_Z1fSt4pairIiiE";
  const std::string digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  auto substitution = [&](int number) {
    if (number >= 36) return absl::StrCat("S", digits.substr(number / 36, 1), digits.substr(number % 36, 1), "_");
    return absl::StrCat("S", digits.substr(number, 1), "_");
  };
  for (int number = 0; number < 60; number++) {
    absl::StrAppend(&name, "S_I", substitution(number), substitution(number), "E");
  }
  TemporaryFolder folder;
  WriteFile(folder / "f.s", absl::StrCat(".text\n.globl ", name, "\n.type ", name, ",@function\n", name,
                                         ":\n nop\n ret\n.size ", name, ",.-", name, "\n"));
  Shell(absl::StrCat("gcc -shared -nostdlib -o ", folder / "f.so", " ", folder / "f.s"));
  const std::vector<Symbol> functions = FunctionsOf(folder / "f.so", "--no-demangle");
  ASSERT_THAT(functions, SizeIs(1));
  // The name takes all the time that there is, and a busy machine may then need more for the rest.
  Frames frames;
  for (int seconds = 1; frames.empty() && seconds <= 64; seconds *= 4) {
    worker::Crews crews_of_symbolizer;
    worker::Symbolizer symbolizer(crews_of_symbolizer,
                                  {.limits = {.time = absl::Seconds(seconds), .memory_bytes = 64 << 20}});
    frames = Symbolize(symbolizer, folder / "f.so", {functions[0].start})[0];
    if (frames.empty()) continue;
    const uint64_t jobs = symbolizer.jobs();
    const Frames again = Symbolize(symbolizer, folder / "f.so", {functions[0].start + 1})[0];
    if (again.empty()) {
      frames.clear();  // more time for both
      continue;
    }
    EXPECT_EQ(again[0].function.view(), name);
    EXPECT_EQ(symbolizer.jobs(), jobs + 1) << "the name was tried again";
  }
  ASSERT_THAT(frames, SizeIs(1));
  EXPECT_EQ(frames[0].function.view(), name);
}

TEST(Hostile, NoTime) {
  Program program;
  worker::Crews crews_of_symbolizer;
  worker::Symbolizer symbolizer(crews_of_symbolizer, {.limits = {.time = absl::ZeroDuration()}});
  EXPECT_THAT(Symbolize(symbolizer, program.path, program.addresses), Each(IsEmpty()));
  const uint64_t before = symbolizer.jobs();
  std::vector<uint64_t> others = program.addresses;
  for (uint64_t& address : others) address += 0x100;
  EXPECT_THAT(Symbolize(symbolizer, program.path, others), Each(IsEmpty()));
  EXPECT_EQ(symbolizer.jobs(), before) << "it must not be tried again";
}

TEST(Cache, AsksOnce) {
  Program program;
  worker::Crews crews_of_symbolizer;
  worker::Symbolizer symbolizer(crews_of_symbolizer, {});
  const std::vector<Frames> first = Symbolize(symbolizer, program.path, program.addresses);
  EXPECT_THAT(first, Each(Not(IsEmpty())));
  const uint64_t before = symbolizer.jobs();
  EXPECT_EQ(Symbolize(symbolizer, program.path, program.addresses), first);
  EXPECT_EQ(symbolizer.jobs(), before);
  // Failures are cached too.
  EXPECT_THAT(Symbolize(symbolizer, program.path, {~uint64_t{0}}), Each(IsEmpty()));
  const uint64_t after = symbolizer.jobs();
  EXPECT_GT(after, before);
  EXPECT_THAT(Symbolize(symbolizer, program.path, {~uint64_t{0}}), Each(IsEmpty()));
  EXPECT_EQ(symbolizer.jobs(), after);
  // Any order, any number of times.
  std::vector<uint64_t> turned(program.addresses.rbegin(), program.addresses.rend());
  turned.insert(turned.end(), program.addresses.begin(), program.addresses.end());
  std::vector<Frames> expected(first.rbegin(), first.rend());
  expected.insert(expected.end(), first.begin(), first.end());
  worker::Crews crews_of_other;
  worker::Symbolizer other(crews_of_other, {});
  EXPECT_EQ(Symbolize(other, program.path, turned), expected);
}

TEST(Cache, ReadsAChangedFileAgain) {
  Program program;
  worker::Crews crews_of_symbolizer;
  worker::Symbolizer symbolizer(crews_of_symbolizer, {});
  EXPECT_EQ(Symbolize(symbolizer, program.path, program.addresses)[0].back().function.view(), "f(int)");
  std::string bytes = ReadFile(program.path);
  for (size_t at; (at = bytes.find("_Z1fi")) != std::string::npos;) bytes[at + 3] = 'h';
  const struct timespec tick = {.tv_sec = 0, .tv_nsec = 1};
  // The kernel's clock for files may stand still for some milliseconds.
  struct stat before;
  struct stat after;
  ASSERT_EQ(stat(program.path.c_str(), &before), 0);
  do {
    nanosleep(&tick, nullptr);
    WriteFile(program.path, bytes);
    ASSERT_EQ(stat(program.path.c_str(), &after), 0);
  } while (before.st_ctim.tv_nsec == after.st_ctim.tv_nsec);
  EXPECT_EQ(Symbolize(symbolizer, program.path, program.addresses)[0].back().function.view(), "h(int)");
}

TEST(Cache, TheLeastRecentlyUsedFileGoes) {
  Program a;
  Program b;
  Program c;
  worker::Crews crews_of_measure;
  worker::Symbolizer measure(crews_of_measure, {});
  Symbolize(measure, a.path, a.addresses);
  const uint64_t one = measure.cache_bytes();
  EXPECT_GT(one, 1000u);

  // Room for two. Names of folders differ, so sizes differ by some bytes.
  worker::Crews crews_of_symbolizer;
  worker::Symbolizer symbolizer(crews_of_symbolizer, {.cache_bytes = one * 5 / 2});
  Symbolize(symbolizer, a.path, a.addresses);
  Symbolize(symbolizer, b.path, b.addresses);
  Symbolize(symbolizer, a.path, a.addresses);
  Symbolize(symbolizer, c.path, c.addresses);
  EXPECT_LE(symbolizer.cache_bytes(), one * 5 / 2);
  const uint64_t before = symbolizer.jobs();
  Symbolize(symbolizer, a.path, a.addresses);
  Symbolize(symbolizer, c.path, c.addresses);
  EXPECT_EQ(symbolizer.jobs(), before);
  Symbolize(symbolizer, b.path, b.addresses);
  EXPECT_GT(symbolizer.jobs(), before);

  // Less than one file: answers are right, and nothing is kept.
  worker::Crews crews_of_tiny;
  worker::Symbolizer tiny(crews_of_tiny, {.cache_bytes = 10});
  EXPECT_THAT(Symbolize(tiny, a.path, a.addresses), Each(Not(IsEmpty())));
  EXPECT_EQ(tiny.cache_bytes(), 0u);
}

}  // namespace
}  // namespace heaptap::symbolize
