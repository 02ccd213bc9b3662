// SPDX-License-Identifier: Apache-2.0
#include "optimised.h"

namespace {

class Circle : public Shape {
 public:
  explicit Circle(int radius) : radius_(radius), name_("circle of radius " + std::to_string(radius)) {}
  std::string Describe(int depth) const override { return std::string(depth * 4, ' ') + name_ + "\n"; }

 private:
  int radius_;
  std::string name_;
};

class Group : public Shape {
 public:
  explicit Group(std::vector<std::unique_ptr<Shape>> members) : members_(std::move(members)) {}
  std::string Describe(int depth) const override {
    std::string all = std::string(depth * 4, ' ') + "group of " + std::to_string(members_.size()) + "\n";
    for (const auto& member : members_) all += member->Describe(depth + 1);
    return all;
  }

 private:
  std::vector<std::unique_ptr<Shape>> members_;
};

}  // namespace

std::unique_ptr<Shape> MakeCircle(int radius) { return std::make_unique<Circle>(radius); }

std::unique_ptr<Shape> MakeGroup(std::vector<std::unique_ptr<Shape>> members) {
  return std::make_unique<Group>(std::move(members));
}

void ForEachWord(const std::string& text, const std::function<void(const std::string&)>& visit) {
  std::string word;
  for (const char c : text) {
    if (c != ' ' && c != '\n') {
      word += c;
    } else if (!word.empty()) {
      visit(word);
      word.clear();
    }
  }
}
