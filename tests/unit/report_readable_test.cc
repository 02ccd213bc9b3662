// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "gtest/gtest.h"
#include "userspace/report/readable.h"

namespace heaptap::report {
namespace {

TEST(ReadableName, OfCxx) {
  const std::pair<const char*, const char*> kNames[] = {
      {"main", "main"},
      {"foo(int, char const*)", "foo"},
      {"std::vector<int, std::allocator<int> >::push_back(int&&)", "std::vector<...>::push_back"},
      {"void std::vector<Page, std::allocator<Page> >::_M_realloc_insert<Page const&>(int)",
       "std::vector<...>::_M_realloc_insert<...>"},
      {"operator new(unsigned long)", "operator new"},
      {"operator new[](unsigned long, std::nothrow_t const&)", "operator new[]"},
      {"std::ostream& operator<< <char>(std::ostream&, char)", "operator<<<...>"},
      {"Matrix::operator()(int, int) const", "Matrix::operator()"},
      {"Matrix::operator[](int)", "Matrix::operator[]"},
      {"Number::operator int() const", "Number::operator int"},
      {"(anonymous namespace)::Cache::get(std::string const&)", "(anonymous namespace)::Cache::get"},
      {"Server::run()::{lambda(Request const&)#1}::operator()(Request const&) const",
       "Server::run::{lambda#1}::operator()"},
      {"Server::run() const::{lambda()#2}::operator()() const", "Server::run::{lambda#2}::operator()"},
      {"decltype(auto) visit<Visitor, std::variant<int> >(Visitor&&)", "visit<...>"},
      {"std::function<void (int)>::operator()(int) const", "std::function<...>::operator()"},
      {"f<(Kind)3, (a->b)>(int)", "f<...>"},
      {"redis-server+0x64ef7", "redis-server+0x64ef7"},
      {"[unknown call path]", "[unknown call path]"},
  };
  for (const auto& [name, readable] : kNames) EXPECT_EQ(ReadableName(name), readable);
}

TEST(ReadableName, OfRust) {
  const std::pair<const char*, const char*> kNames[] = {
      {"alloc::vec::Vec<T,A>::reserve::h0123456789abcdef", "alloc::vec::Vec<...>::reserve"},
      {"<alloc::vec::Vec<T,A> as core::ops::drop::Drop>::drop",
       "<alloc::vec::Vec<...> as core::ops::drop::Drop>::drop"},
      {"server::run::{{closure}}", "server::run::{{closure}}"},
      {"core::ops::function::FnOnce::call_once{{vtable.shim}}",
       "core::ops::function::FnOnce::call_once{{vtable.shim}}"},
  };
  for (const auto& [name, readable] : kNames) EXPECT_EQ(ReadableName(name), readable);
}

// Whatever a program's symbols hold, a name stays a name.
TEST(ReadableName, OfNonsense) {
  for (const char* name :
       {"<", "(", "{", "<<<<", "operator", "operator<", ")", " ", "a<b", "a(b", " as ", "::h", "<>"}) {
    EXPECT_NE(ReadableName(name), "") << name;
  }
}

TEST(Plumbing, AllocatorsAndStandardLibraries) {
  for (const char* name : {"malloc", "operator new(unsigned long)", "std::vector<int>::push_back(int&&)",
                           "alloc::raw_vec::finish_grow", "<alloc::string::String as core::clone::Clone>::clone",
                           "__gnu_cxx::new_allocator<int>::allocate(unsigned long, void const*)",
                           "libjemalloc.so.2+0xa2630", "libstdc++.so.6.0.30+0xd44a2", "libc++.so.1.0+0x12"}) {
    EXPECT_TRUE(IsPlumbing(name)) << name;
  }
  for (const char* name : {"main", "malloc_wrapper", "stdx::f()", "redis-server+0x1", "sdsnewlen", "coreutils::f",
                           "libjemalloc_user", "libx.so+0x1", "libstdc++x.so.6+0x1", "libc++tool+0x1"}) {
    EXPECT_FALSE(IsPlumbing(name)) << name;
  }
  EXPECT_TRUE(IsPlumbing("operator()", "/usr/include/c++/12/bits/std_thread.h", true));
  EXPECT_TRUE(IsPlumbing("f", "/usr/lib/llvm-14/include/c++/v1/map", true));
  EXPECT_TRUE(IsPlumbing("f", "/rustc/9fc6b431/library/core/src/ops/function.rs", false));
  EXPECT_FALSE(IsPlumbing("f", "/usr/include/c++/12/bits/std_thread.h", false)) << "the line may be of what it calls";
  EXPECT_FALSE(IsPlumbing("f", "/home/me/library/vec.rs", true));
  EXPECT_TRUE(IsPlumbing("std::f", "", false));
  EXPECT_TRUE(IsStart("__libc_start_main@GLIBC_2.34"));
  EXPECT_FALSE(IsStart("main"));
}

}  // namespace
}  // namespace heaptap::report
