// SPDX-License-Identifier: Apache-2.0
//
// Names of functions that have no linker's name in debug information, in programs made by the compilers.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/folder.h"
#include "tests/unit/symbolize_program.h"

namespace heaptap::symbolize {
namespace {

using ::testing::Contains;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kProgram[] = R"(#include <functional>
#include <map>
#include <vector>
volatile int sink;
#define INLINE inline __attribute__((always_inline))
namespace shop {
namespace {
struct Order { int number; };
INLINE void inlined(int value) { sink = value; }
template <typename T> struct Cache {
  struct Entry { INLINE void touch() { sink = sink + 1; } };
  INLINE void get(T value) { Entry().touch(); inlined(value); }
};
__attribute__((noinline)) void outlined(int value) { sink = value + 3; sink = sink * 5; }
}  // namespace
extern "C" __attribute__((noinline)) void plain(int value) { sink = value; sink = value + 1; }
class Server {
 public:
  void serve(int value);
};
void Server::serve(int value) {
  const auto handle = [&](int more) __attribute__((always_inline)) { Cache<int>().get(more + value); };
  struct Local { INLINE void run() { sink = sink - 2; } };
  handle(value);
  Local().run();
  std::map<int, Order> orders;
  orders[value] = Order{1};
  sink = static_cast<int>(orders.size());
  outlined(value);
}
}  // namespace shop
int main(int argc, char**) { shop::Server().serve(argc); shop::plain(argc); }
)";

std::set<std::string> NamesIn(const std::string& path) {
  worker::Crews crews;
  worker::Symbolizer symbolizer(crews, {});
  std::set<std::string> names;
  for (const Frames& frames : Symbolize(symbolizer, path, AddressesIn(FunctionsOf(path), 1))) {
    for (const Frame& frame : frames) names.insert(std::string(frame.function.view()));
  }
  return names;
}

class ScopeNamesTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ScopeNamesTest, HaveTheirScopes) {
  const TemporaryFolder folder;
  WriteFile(folder / "program.cc", kProgram);
  Shell(absl::StrCat("cd ", folder.path(), " && ", GetParam(), " -o program program.cc"));
  const std::set<std::string> names = NamesIn(folder / "program");
  const auto ends = [](const std::string& end) {
    return ::testing::Truly(
        [end](const std::string& name) { return name == end || absl::StartsWith(name, end + "("); });
  };
  EXPECT_THAT(names, Contains(ends("shop::(anonymous namespace)::inlined")));
  EXPECT_THAT(names, Contains(ends("shop::(anonymous namespace)::Cache<int>::get")));
  EXPECT_THAT(names, Contains(ends("shop::(anonymous namespace)::Cache<int>::Entry::touch")));
  EXPECT_THAT(names, Contains(ends("shop::(anonymous namespace)::outlined")));
  EXPECT_THAT(names, Contains("plain")) << "C linkage has no scope";
  EXPECT_THAT(names, Contains(ends("shop::Server::serve")));
  // Clang gives lambdas a linker's name, with a number: "$_0".
  EXPECT_THAT(
      names,
      Contains(::testing::ContainsRegex("^shop::Server::serve(\\(int\\))?::([{]lambda.*[}]|[$]_0)::operator\\(\\)")));
  EXPECT_THAT(names, Contains(::testing::AllOf(StartsWith("shop::Server::serve"), ::testing::HasSubstr("Local::run"))));
  // What the library has made for a type that is local to its file.
  for (const std::string& name : names) {
    for (const char* own : {"_M_", "allocate", "operator[]", "operator()", "get", "touch", "run", "construct"}) {
      EXPECT_FALSE(absl::StartsWith(name, own)) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Compilers, ScopeNamesTest,
                         ::testing::Values("g++ -g -O2", "g++ -g -O2 -flto", "g++ -gdwarf-4 -O1",
                                           "g++ -g -O2 -fdebug-types-section", "clang++ -g -O2",
                                           "clang++ -gdwarf-4 -O2", "clang++ -g -O2 -fdebug-types-section"));

// In other languages a function within another one is called by its own name.
TEST(ScopeNames, NotOfC) {
  const TemporaryFolder folder;
  WriteFile(folder / "program.c", R"(volatile int sink;
int main(int argc, char** argv) {
  __attribute__((noinline)) void nested(int value) { sink = value + argc; sink = value; }
  nested(argc);
  nested(sink);
})");
  Shell(absl::StrCat("cd ", folder.path(), " && gcc -g -O1 -o program program.c"));
  for (const std::string& name : NamesIn(folder / "program")) EXPECT_THAT(name, Not(StartsWith("main::"))) << name;
}

}  // namespace
}  // namespace heaptap::symbolize
