// SPDX-License-Identifier: Apache-2.0
//
// The same for C++: blocks of the C++ library in the program, and the other way round. Then keeps N blocks of 100 bytes
// in doors_keep.
#include <stdio.h>
#include <stdlib.h>

#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

void* volatile sink;

void Strings() {
  std::string text;
  for (int i = 0; i < 1000; i++) text += std::to_string(i);
  std::istringstream in(text + "\nsecond\n");
  std::string line(100, ' ');
  // The library grows the program's string, and the program takes the library's.
  std::getline(in, line);
  std::ostringstream out;
  out << line << 3.5 << std::endl;
  std::string moved = std::move(out).str();
  moved.reserve(100000);
  if (moved.size() != text.size() + 4) abort();
}

void Exceptions() {
  try {
    throw std::runtime_error(std::string(1000, 'x'));
  } catch (const std::exception& error) {
    std::exception_ptr kept = std::current_exception();
    std::string what = error.what();
    if (what.size() != 1000) abort();
  }
  try {
    std::string().at(5);
    abort();
  } catch (const std::out_of_range&) {
  }
  try {
    volatile size_t huge = static_cast<size_t>(-1) / 4;
    sink = operator new(huge);
    abort();
  } catch (const std::bad_alloc&) {
  }
}

void Containers() {
  std::map<int, std::vector<std::unique_ptr<std::string>>> map;
  for (int i = 0; i < 100; i++) map[i % 10].push_back(std::make_unique<std::string>(i * 10, 'y'));
  std::function<size_t()> size = [copy = std::string(100, 'z')] { return copy.size(); };
  auto shared = std::make_shared<std::function<size_t()>>(size);
  if ((*shared)() != 100) abort();
  struct alignas(256) Wide {
    char bytes[300];
  };
  delete new Wide;
  delete[] new Wide[3];
  delete new (std::nothrow) int;
}

}  // namespace

extern "C" [[gnu::noinline]] void doors_keep(long count) {
  for (long i = 0; i < count; i++) sink = new char[100];
}

int main(int count, char** arguments) {
  if (count < 2) return 2;
  for (int i = 0; i < 20; i++) {
    Strings();
    Exceptions();
    Containers();
  }
  doors_keep(atol(arguments[1]));
  std::cout << "done" << std::endl;
  return 0;
}
