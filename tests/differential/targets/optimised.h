// SPDX-License-Identifier: Apache-2.0
//
// Two files that are one at link time (-O3 -flto -fomit-frame-pointer).
#ifndef OPTIMISED_H_
#define OPTIMISED_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

struct Shape {
  virtual ~Shape() = default;
  virtual std::string Describe(int depth) const = 0;
};

std::unique_ptr<Shape> MakeCircle(int radius);
std::unique_ptr<Shape> MakeGroup(std::vector<std::unique_ptr<Shape>> members);
void ForEachWord(const std::string& text, const std::function<void(const std::string&)>& visit);

#endif  // OPTIMISED_H_
