// SPDX-License-Identifier: Apache-2.0
//
// Exceptions: thrown through several frames, caught, rethrown, nested, carried by exception_ptr; destructors and
// handlers that allocate during unwinding.
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "keep.h"

namespace {

struct AllocatesAtEnd {
  explicit AllocatesAtEnd(size_t size) : size(size) {}
  ~AllocatesAtEnd() { keep(size); }
  size_t size;
};

struct Big : std::runtime_error {
  explicit Big(int level) : std::runtime_error("level " + std::string(level * 20, 'x')), level(level) {}
  int level;
  char room[300] = {};
};

bool volatile is_calm = false;

NOINLINE void throws(int level) {
  AllocatesAtEnd end(100 + level);
  if (is_calm) return;
  if (level % 3 == 0) throw Big(level);
  if (level % 3 == 1) throw level;
  throw std::vector<int>(level * 10);
}

NOINLINE void down(int level, int at_end) {
  AllocatesAtEnd end(1000 + level);
  std::string text(level * 8 + 30, 'y');
  if (level == 0) {
    throws(at_end);
  } else {
    down(level - 1, at_end);
  }
  kept = const_cast<char*>(text.data());
}

NOINLINE void again(int level, int at_end) {
  try {
    down(level, at_end);
  } catch (const Big& big) {
    keep(2000 + big.level);
    throw;
  } catch (int) {
    keep(3000);
    std::throw_with_nested(std::logic_error("nested"));
  }
}

NOINLINE void carry(int level) {
  std::exception_ptr carried;
  try {
    again(level, level);
  } catch (...) {
    keep(4000);
    carried = std::current_exception();
  }
  try {
    std::rethrow_exception(carried);
  } catch (const std::logic_error& error) {
    try {
      std::rethrow_if_nested(error);
    } catch (int) {
      keep(5000);
    }
  } catch (const std::exception&) {
    keep(6000);
  } catch (const std::vector<int>& numbers) {
    keep(7000 + numbers.size());
  }
}

}  // namespace

int main() {
  for (int round = 0; round < 300; round++) carry(round % 12);
}
