// SPDX-License-Identifier: Apache-2.0
//
// C++ containers and strings, an ordinary input for clang, and a program with operator new in its call paths: keeps
// 1000 nodes of a tree in build_index() and prints their sum.
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

struct Node {
  std::string name;
  std::vector<int> numbers;
};

using Index = std::map<int, std::unique_ptr<Node>>;

__attribute__((noinline)) Index build_index(int count) {
  Index index;
  for (int i = 0; i < count; i++) {
    auto node = std::make_unique<Node>();
    node->name = "a name that is longer than the small buffer " + std::to_string(i);
    node->numbers.assign(static_cast<size_t>(i % 50), i);
    index[i] = std::move(node);
  }
  return index;
}

}  // namespace

int main() {
  auto* index = new Index(build_index(1000));
  long sum = 0;
  for (const auto& [key, node] : *index) {
    for (int number : node->numbers) sum += number;
    sum += key + static_cast<long>(node->name.size());
  }
  std::printf("%ld\n", sum);
  return 0;
}
