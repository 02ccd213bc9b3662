// SPDX-License-Identifier: Apache-2.0
#include "optimised.h"

#include <map>

namespace {

std::unique_ptr<Shape> Nest(int depth, int width) {
  std::vector<std::unique_ptr<Shape>> members;
  for (int i = 0; i < width; i++) {
    members.push_back(depth == 0 ? MakeCircle(100 + i) : Nest(depth - 1, width));
  }
  return MakeGroup(std::move(members));
}

}  // namespace

int main() {
  std::map<std::string, std::vector<int>> places;
  for (int round = 0; round < 10; round++) {
    const std::string text = Nest(3, 3)->Describe(0);
    int at = round;
    ForEachWord(text, [&places, &at](const std::string& word) { places[word + std::string(20, '.')].push_back(at++); });
  }
  return places.empty() ? 1 : 0;
}
