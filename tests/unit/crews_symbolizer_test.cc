// SPDX-License-Identifier: Apache-2.0
//
// Compares names and lines with those of addr2line(1), in programs made by the compiler.
#include <sys/resource.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/symbolize_program.h"
#include "userspace/symbolize/demangle.h"

namespace heaptap::symbolize {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// The tests know the line numbers.
constexpr char kProgram[] = R"(#include <algorithm>
#include <string>
#include <vector>
volatile int sink;
namespace {
inline __attribute__((always_inline)) void Leaf(int value) {
  sink = value;  // line 7
}
struct Middle {
  __attribute__((always_inline)) void Go(int value) const {
    Leaf(value + 1);  // line 11
  }
};
template <typename T>
__attribute__((noinline)) void Outer(T value) {
  Middle().Go(value);  // line 16
  sink = 2;            // line 17
}
__attribute__((noinline)) std::vector<std::string> Sorted(int count) {
  std::vector<std::string> texts;
  for (int i = 0; i < count; i++) texts.push_back(std::to_string(i * 7919 % 1000));
  std::sort(texts.begin(), texts.end(), [](const std::string& a, const std::string& b) { return b < a; });
  return texts;
}
}  // namespace
static int __attribute__((noinline)) static_function(int count) { return count * sink; }
extern "C" int plain_function(int count) {
  Outer<int>(count);
  return static_cast<int>(Sorted(count).size()) + static_function(count);
}
int main(int argc, char**) { return plain_function(argc); }
)";

absl::string_view BaseName(absl::string_view path) { return path.substr(path.rfind('/') + 1); }

bool IsSameFunction(absl::string_view a, absl::string_view b) {
  // Debug information does not name clones apart.
  return a.substr(0, a.find(" [clone ")) == b.substr(0, b.find(" [clone ")) ||
         absl::StartsWith(b, absl::StrCat(a, "."));
}

// Whether one of the symbols at the address has the name.
bool IsAlias(const std::vector<Symbol>& functions, uint64_t address, absl::string_view name) {
  return std::any_of(functions.begin(), functions.end(), [&](const Symbol& function) {
    return address - function.start < function.size && IsSameFunction(function.name, name);
  });
}

bool BeginsAt(const std::vector<Symbol>& functions, uint64_t address) {
  return std::any_of(functions.begin(), functions.end(),
                     [&](const Symbol& function) { return function.start == address; });
}

// Compares every frame's line, function and file at every `step`th address in every function.
//
// With binutils' tool what version 2.40 is known to get wrong is counted and bounded: functions that debug information
// has no linker's name of lack their scope or get the enclosing symbol's name, wherever they were inlined; the file of
// a place is often the unit's main file. LLVM's is right in that; its demangler is not, so ours is put behind it.
//
// Ties are counted too: where a function begins at the empty end of another sequence of rows, the line is chosen
// (userspace/symbolize/dwarf_frames.cc), and with some bad luck it is the other's.
void ExpectAsAddr2line(const TemporaryFolder& folder, const std::string& path, uint64_t step, bool llvm) {
  SCOPED_TRACE(path);
  std::vector<Symbol> functions = FunctionsOf(path);
  // What the C library's start files bring has no debug information, and addr2line no name for some of it.
  std::erase_if(functions, [](const Symbol& function) { return absl::StartsWith(function.name, "_"); });
  const std::vector<uint64_t> addresses = AddressesIn(functions, step);
  ASSERT_GT(addresses.size(), 100u);
  worker::Crews crews_of_symbolizer;
  // The answer is compared, whatever time it takes a busy machine.
  worker::Symbolizer symbolizer(crews_of_symbolizer, {.limits = {.time = absl::Hours(1)}});
  const std::vector<Frames> ours = Symbolize(symbolizer, path, addresses);
  const std::vector<Frames> theirs =
      AskAddr2line(folder, path, addresses, llvm ? "llvm-addr2line --no-demangle" : "addr2line -C");
  ASSERT_EQ(theirs.size(), addresses.size());
  size_t frames = 0;
  size_t wrong_functions = 0;
  size_t wrong_files = 0;
  size_t lines_unknown = 0;
  size_t ties = 0;
  const auto compare = [&](size_t index) {
    // Asked for one address alone, binutils' tool knows the line, and what was inlined there; asked for many, at times
    // not.
    const auto is_unknown_to_them = [llvm](const Frame& our, const Frame& their) {
      return !llvm && their.line == 0 && our.line != 0;
    };
    if (theirs[index].size() == 1 && is_unknown_to_them(ours[index][0], theirs[index][0])) {
      lines_unknown++;
      return;
    }
    ASSERT_EQ(ours[index].size(), theirs[index].size());
    for (size_t at = 0; at < ours[index].size(); at++) {
      const Frame& our = ours[index][at];
      const Frame& their = theirs[index][at];
      const std::string their_name = Demangle(std::string(their.function.view()));
      frames++;
      if (our.line != their.line && at == 0 && BeginsAt(functions, addresses[index])) {
        ties++;
        continue;
      }
      if (is_unknown_to_them(our, their)) {
        lines_unknown++;
        continue;
      }
      ASSERT_EQ(our.line, their.line);
      ASSERT_EQ(our.is_inline, their.is_inline);
      ASSERT_FALSE(our.function.empty());
      // Without debug information they give the symbol table's word for the file.
      if (our.line != 0 && BaseName(our.file.view()) != BaseName(their.file.view())) {
        wrong_files++;
        ASSERT_FALSE(llvm);
      }
      if (IsSameFunction(our.function.view(), their_name)) continue;
      // Where there is no linker's name they leave the scope out (symbolize_scope_names_test.cc).
      if (absl::EndsWith(our.function.view(), absl::StrCat("::", their_name))) continue;
      if (!our.is_inline) {
        ASSERT_TRUE(IsAlias(functions, addresses[index], our.function.view()));
      }
      if (IsAlias(functions, addresses[index], their_name) && !our.is_inline) continue;
      wrong_functions++;
      // LLVM takes labels within functions of assembly for functions.
      if (llvm && our.line == 0 && !our.is_inline) continue;
      ASSERT_FALSE(llvm);
      ASSERT_TRUE(IsAlias(functions, addresses[index], their_name) ||
                  absl::StrContains(our.function.view(), their_name.substr(0, their_name.find('<'))));
    }
  };
  for (size_t index = 0; index < addresses.size(); index++) {
    compare(index);
    // A scoped trace would cost more than the comparison.
    ASSERT_FALSE(testing::Test::HasFatalFailure())
        << absl::StrCat(absl::Hex(addresses[index])) << "\nours:   " << testing::PrintToString(ours[index])
        << "\ntheirs: " << testing::PrintToString(theirs[index]);
  }
  EXPECT_LE(wrong_functions, frames / 10) << frames;
  EXPECT_LE(wrong_files, frames / 4) << frames;
  EXPECT_LE(lines_unknown, addresses.size() / 1000) << addresses.size();
  EXPECT_LE(ties, addresses.size() / 5000) << addresses.size();
}

class SymbolizerTest : public testing::Test {
 protected:
  // Returns the path of the program.
  std::string Compile(const std::string& flags, const std::string& name = "program") {
    WriteFile(folder_ / "program.cc", kProgram);
    Shell(absl::StrCat("cd ", folder_.path(), " && ", flags, " -o ", name, " program.cc"));
    return folder_ / name;
  }

  // The answers that have `function` for their outermost.
  static std::vector<Frames> In(const std::string& path, worker::Symbolizer& symbolizer, absl::string_view function) {
    std::vector<Frames> found;
    for (Frames& frames : Symbolize(symbolizer, path, AddressesIn(FunctionsOf(path), 1))) {
      if (!frames.empty() && absl::StrContains(frames.back().function.view(), function)) {
        found.push_back(std::move(frames));
      }
    }
    return found;
  }

  std::vector<Frames> All(worker::Symbolizer& symbolizer, const std::string& path) const {
    return Symbolize(symbolizer, path, addresses_);
  }

  TemporaryFolder folder_;
  std::vector<uint64_t> addresses_;
};

// Without descriptors there is no pipe to a child, which is not the file's fault.
TEST_F(SymbolizerTest, WhatCouldNotBeAskedIsAskedAgain) {
  const std::string path = Compile("g++ -O0 -g");
  worker::Crews crews_of_symbolizer;
  worker::Symbolizer symbolizer(crews_of_symbolizer, {});
  const base::FileDescriptor program(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const absl::StatusOr<elf::File> file = elf::File::Open(program.get());
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<uint64_t> offsets;
  for (const uint64_t address : AddressesIn(FunctionsOf(path), 1)) {
    offsets.push_back(file->AddressToOffset(address, PF_X).value_or(0));
  }
  elf::Mapping mapping;
  mapping.path = path;
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  // Whatever number comes next is too large.
  const rlimit none = {0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::vector<Frames> refused =
      symbolizer.Symbolize(getuid(), {.fd = program.get(), .mapping = mapping}, offsets);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  for (const Frames& frames : refused) EXPECT_TRUE(frames.empty());
  const std::vector<Frames> given = symbolizer.Symbolize(getuid(), {.fd = program.get(), .mapping = mapping}, offsets);
  EXPECT_TRUE(std::any_of(given.begin(), given.end(), [](const Frames& frames) { return !frames.empty(); }));
}

TEST_F(SymbolizerTest, SeesInlinedFunctions) {
  const std::string program = Compile("g++ -g -O2");
  worker::Crews crews_of_symbolizer;
  worker::Symbolizer symbolizer(crews_of_symbolizer, {});
  bool deep = false;
  bool flat = false;
  for (const Frames& frames : In(program, symbolizer, "Outer<int>")) {
    EXPECT_FALSE(frames.back().is_inline);
    EXPECT_EQ(BaseName(frames.back().file.view()), "program.cc");
    EXPECT_EQ(frames.back().file.view()[0], '/') << frames.back().file.view();
    if (frames.size() == 1) flat |= frames[0].line == 17;
    if (frames.size() != 3) continue;
    deep = true;
    EXPECT_TRUE(absl::StrContains(frames[0].function.view(), "Leaf")) << testing::PrintToString(frames);
    EXPECT_TRUE(absl::StrContains(frames[1].function.view(), "Go")) << testing::PrintToString(frames);
    EXPECT_EQ(frames[2].function.view().substr(0, 48), "void (anonymous namespace)::Outer<int>(int)");
    EXPECT_EQ(frames[0].line, 7u);
    EXPECT_EQ(frames[1].line, 11u);
    EXPECT_EQ(frames[2].line, 16u);
    EXPECT_TRUE(frames[0].is_inline);
    EXPECT_TRUE(frames[1].is_inline);
  }
  EXPECT_TRUE(deep);
  EXPECT_TRUE(flat);
  EXPECT_THAT(In(program, symbolizer, "static_function"), Not(IsEmpty()));
  EXPECT_THAT(In(program, symbolizer, "plain_function"), Not(IsEmpty()));
}

TEST_F(SymbolizerTest, AgreesWithAddr2line) {
  const std::string kinds[] = {"g++ -g -O2 -pie -fPIE",
                               "g++ -g -O2 -no-pie",
                               "g++ -g -O2 -shared -fPIC",
                               "g++ -g -O0",
                               "g++ -gdwarf-4 -O3",
                               "g++ -g -O2 -gz",
                               "g++ -g -O2 -flto",
                               "clang++ -g -O2",
                               "g++ -g -O2 -ffunction-sections",
                               "clang++ -gdwarf-4 -O1"};
  for (const std::string& kind : kinds) {
    SCOPED_TRACE(kind);
    const std::string program = Compile(kind);
    // Binutils 2.40 sees no inlined functions in clang's DWARF 5.
    ExpectAsAddr2line(folder_, program, 1, true);
    if (!absl::StartsWith(kind, "clang")) ExpectAsAddr2line(folder_, program, 1, false);
    if (HasFatalFailure()) return;
  }
}

// The line program has the second function's rows first, and ends with an empty row where that function begins.
TEST_F(SymbolizerTest, WhereOneFunctionsRowsEndTheNextOnesBegin) {
  WriteFile(folder_ / "touching.cc", R"(volatile int sink;
inline __attribute__((always_inline)) void Leaf() {
  sink = 3;  // line 3
}
extern "C" __attribute__((section(".text.hot.b"))) void second() {
  Leaf();  // line 6
}
extern "C" __attribute__((section(".text.unlikely.a"))) void first() {
  asm volatile("ud2"); asm volatile(""); __builtin_unreachable();  // line 9: three places
}
int main() { second(); first(); }
)");
  const std::string program = folder_ / "touching";
  Shell("g++ -g -O2 -falign-functions=1 -fno-reorder-functions -o " + program + " " + program + ".cc");
  const std::vector<Symbol> functions = FunctionsOf(program);
  auto find = [&](absl::string_view name) {
    return *std::find_if(functions.begin(), functions.end(), [&](const Symbol& one) { return one.name == name; });
  };
  const Symbol first = find("first");
  const Symbol second = find("second");
  ASSERT_EQ(first.start + first.size, second.start);
  worker::Crews crews_of_symbolizer;
  worker::Symbolizer symbolizer(crews_of_symbolizer, {});
  const std::vector<Frames> frames = Symbolize(symbolizer, program, {first.start, second.start});
  ASSERT_THAT(frames[0], SizeIs(1));
  EXPECT_EQ(frames[0][0].function.view(), "first");
  EXPECT_EQ(frames[0][0].line, 9u);
  ASSERT_THAT(frames[1], SizeIs(2));
  EXPECT_EQ(frames[1][0].line, 3u);
  EXPECT_EQ(frames[1][1].function.view(), "second");
  EXPECT_EQ(frames[1][1].line, 6u);
}

// HEAPTAP_COLLECTOR: the path of the collector, which is large and made by GCC.
TEST_F(SymbolizerTest, AgreesOnTheCollector) {
  for (const bool llvm : {false, true}) ExpectAsAddr2line(folder_, HEAPTAP_COLLECTOR, 128, llvm);
}

TEST_F(SymbolizerTest, NamesEveryFunctionOfAStrippedLibrary) {
  const std::string library = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6";
  const std::vector<Symbol> functions = FunctionsOf(library, "-D");
  ASSERT_GT(functions.size(), 4000u);
  std::map<uint64_t, std::set<std::string>> aliases;
  std::vector<uint64_t> addresses;
  std::vector<uint64_t> starts;
  for (const Symbol& function : functions) {
    if (function.size == 0) continue;
    aliases[function.start].insert(function.name);
    addresses.push_back(function.start + function.size / 2);
    starts.push_back(function.start);
  }
  TemporaryFolder nothing;
  worker::Crews crews_of_symbolizer;
  worker::Symbolizer symbolizer(crews_of_symbolizer, {.debug_root = nothing.path()});
  const std::vector<Frames> ours = Symbolize(symbolizer, library, addresses);
  const std::vector<Frames> theirs = AskAddr2line(folder_, library, addresses);
  for (size_t index = 0; index < addresses.size(); index++) {
    ASSERT_THAT(ours[index], SizeIs(1)) << functions[index].name;
    EXPECT_TRUE(aliases[starts[index]].contains(std::string(ours[index][0].function.view())))
        << testing::PrintToString(ours[index]);
    EXPECT_TRUE(aliases[starts[index]].contains(std::string(theirs[index][0].function.view()))) << "addr2line";
  }
}

class DebugFilesTest : public SymbolizerTest {
 protected:
  // Makes a program, its stripped copy and its debug file.
  void Make(const std::string& flags) {
    program_ = Compile("g++ -g -O2 " + flags);
    addresses_ = AddressesIn(FunctionsOf(program_), 4);
    worker::Crews crews_of_symbolizer;
    worker::Symbolizer symbolizer(crews_of_symbolizer, {.debug_root = folder_ / "root"});
    whole_ = All(symbolizer, program_);
    stripped_ = folder_ / "stripped";
    debug_ = folder_ / "stripped.debug";
    Shell(absl::StrCat("objcopy --only-keep-debug ", program_, " ", debug_, " && objcopy -S ", program_, " ", stripped_,
                       " && mkdir ", folder_ / "root"));
  }

  // Where the file with the program's build-id belongs.
  std::string ByBuildId() const {
    const std::string id =
        OutputOf(absl::StrCat("readelf -n ", program_, " | sed -n 's/.*Build ID: //p' | tr -d '\\n'"));
    const std::string folder = absl::StrCat(folder_ / "root", "/.build-id/", id.substr(0, 2));
    std::filesystem::create_directories(folder);
    return absl::StrCat(folder, "/", id.substr(2), ".debug");
  }

  // Of the stripped program, by a new symbolizer.
  std::vector<Frames> Stripped() const {
    worker::Crews crews_of_symbolizer;
    worker::Symbolizer symbolizer(crews_of_symbolizer, {.debug_root = folder_ / "root"});
    return All(symbolizer, stripped_);
  }
  bool KnowsLines() const {
    const std::vector<Frames> all = Stripped();
    return std::any_of(all.begin(), all.end(), [](const Frames& frames) { return !frames.empty() && frames[0].line; });
  }

  std::string program_;
  std::string stripped_;
  std::string debug_;
  std::vector<Frames> whole_;
};

TEST_F(DebugFilesTest, ByBuildId) {
  Make("");
  EXPECT_FALSE(KnowsLines());
  const std::string place = ByBuildId();
  std::filesystem::copy(debug_, place);
  EXPECT_EQ(Stripped(), whole_);

  // Not if another user could have written it.
  std::filesystem::permissions(place, std::filesystem::perms(0666));
  EXPECT_FALSE(KnowsLines());
  std::filesystem::permissions(place, std::filesystem::perms(0644));
  EXPECT_TRUE(KnowsLines());
  if (geteuid() == 0) {
    ASSERT_EQ(chown(place.c_str(), 65534, 65534), 0);
    EXPECT_FALSE(KnowsLines());
  }
  // Nor that of another version.
  std::filesystem::remove(place);
  std::filesystem::copy("/proc/self/exe", place);
  EXPECT_FALSE(KnowsLines());
}

TEST_F(DebugFilesTest, ByLink) {
  Make("-Wl,--build-id=none");
  Shell(absl::StrCat("objcopy --add-gnu-debuglink=", debug_, " ", stripped_));
  EXPECT_FALSE(KnowsLines()) << "beside the program the process could have put it";
  const std::string place = absl::StrCat(folder_ / "root", folder_ / "");
  std::filesystem::create_directories(place);
  std::filesystem::copy(debug_, place);
  EXPECT_EQ(Stripped(), whole_);
  // Nor a link to a file outside.
  std::filesystem::remove(absl::StrCat(place, "stripped.debug"));
  std::filesystem::create_symlink(debug_, absl::StrCat(place, "stripped.debug"));
  EXPECT_FALSE(KnowsLines());
  std::filesystem::remove(absl::StrCat(place, "stripped.debug"));
  std::filesystem::copy(debug_, place);
  EXPECT_TRUE(KnowsLines());
  // Another file.
  Shell(absl::StrCat("printf x >>", place, "stripped.debug"));
  EXPECT_FALSE(KnowsLines());
}

TEST_F(DebugFilesTest, SharedByDwz) {
  Make("");
  // dwz shares what it finds in several files.
  const std::string place = ByBuildId();
  const std::string shared = absl::StrCat(folder_ / "root", "/.dwz/shared.debug");
  std::filesystem::create_directories(absl::StrCat(folder_ / "root", "/.dwz"));
  std::filesystem::copy(debug_, place);
  Compile("g++ -g -O2 -DOTHER", "other");
  Shell(absl::StrCat("dwz -m ", shared, " -M ", shared, " ", place, " ", folder_ / "other"));
  ASSERT_TRUE(absl::StrContains(OutputOf("readelf -SW " + place), ".gnu_debugaltlink"));
  EXPECT_EQ(Stripped(), whole_);
  // Of another version, and none.
  Shell(absl::StrCat("sed -i 's/GNU\\x0/&x/' ", shared));
  EXPECT_NE(Stripped(), whole_);
  std::filesystem::remove(shared);
  EXPECT_NE(Stripped(), whole_);
}

// As find-debuginfo.sh of Fedora makes it: the functions that are not in .dynsym, compressed by xz.
TEST_F(DebugFilesTest, MiniDebugInfo) {
  Make("-rdynamic");
  const auto names = [](const std::vector<Frames>& all) {
    std::vector<std::string> found;
    for (const Frames& frames : all) found.emplace_back(frames.empty() ? "" : frames.back().function.view());
    return found;
  };
  const std::vector<std::string> exported = names(Stripped());
  ASSERT_TRUE(absl::c_linear_search(exported, "")) << "a function is local to its file";
  const auto path = [&](const char* name) { return folder_ / name; };
  Shell(
      absl::StrCat("nm -D ", program_, " --format=posix --defined-only | awk '{print $1}' | sort >", path("dynamic")));
  Shell(absl::StrCat("nm ", program_, " --format=posix --defined-only | awk '$2 ~ /[TtD]/ {print $1}' | sort >",
                     path("functions")));
  Shell(absl::StrCat("comm -13 ", path("dynamic"), " ", path("functions"), " >", path("keep")));
  Shell(absl::StrCat("objcopy -S --remove-section .comment --keep-symbols=", path("keep"), " ", debug_, " ",
                     path("mini"), " && xz ", path("mini")));
  Shell(absl::StrCat("objcopy --add-section .gnu_debugdata=", path("mini.xz"), " ", stripped_));
  EXPECT_EQ(names(Stripped()), names(whole_));
  EXPECT_FALSE(KnowsLines());
  // Debug information has more.
  std::filesystem::copy(debug_, ByBuildId());
  EXPECT_EQ(Stripped(), whole_);
}

}  // namespace
}  // namespace heaptap::symbolize
