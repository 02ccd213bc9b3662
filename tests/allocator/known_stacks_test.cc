// SPDX-License-Identifier: Apache-2.0
//
// Which stacks are known: those that were added, and no others. The stacks are made in memory of the test, as a walk by
// unwind tables would read them: each frame has a return address, and some have a saved RBP that a later frame needs.
#include "allocator/sampling/known_stacks.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "single_step.h"

namespace heaptap {
namespace {

constexpr size_t kStackWords = 1 << 14;

// A stack that grows downwards, and the words that decide its walk.
class TestStack {
 public:
  TestStack() : memory_(kStackWords) { Clear(); }

  void Clear() {
    next_ = memory_.data() + kStackWords;
    words_.clear();
  }
  // Adds the frame of a callee. `size`: in words, with the return address.
  void Call(uint64_t return_address, size_t size = 4) {
    next_ -= size;
    next_[size - 1] = return_address;
    for (size_t i = 0; i + 1 < size; i++) next_[i] = 4711 + i;  // data, which decides nothing
    words_.insert(words_.begin(), {AddressOf(next_ + size - 1), return_address});
  }
  // Adds two frames like those of an allocator: that of the function that reports, and that of its caller. Returns the
  // address of the former.
  uint64_t Allocate(uint64_t place) {
    next_ -= 2;
    uint64_t* const caller = next_;
    next_ -= 2;
    caller[0] = 0;
    caller[1] = place;
    next_[0] = AddressOf(caller);
    next_[1] = 99;
    words_.insert(words_.begin(), {AddressOf(caller + 1), place});
    words_.insert(words_.begin(), {AddressOf(next_ + 1), 99});
    // Of a frame below the one that reports.
    words_.insert(words_.begin(), {AddressOf(next_) - 64, 12345});
    return AddressOf(next_);
  }

  const std::vector<StackWord>& words() const { return words_; }
  uint64_t* WordAt(size_t index) { return reinterpret_cast<uint64_t*>(words_[index].at); }

 private:
  static uint64_t AddressOf(const uint64_t* word) { return reinterpret_cast<uint64_t>(word); }

  std::vector<uint64_t> memory_;
  uint64_t* next_ = nullptr;
  std::vector<StackWord> words_;
};

class KnownStacksTest : public ::testing::Test {
 protected:
  ~KnownStacksTest() override { known_->Clear(); }

  bool Add(uint64_t frame, uint32_t number) {
    return known_->Add(frame, stack_.words().data(), static_cast<uint32_t>(stack_.words().size()), number);
  }
  // The stack of these return addresses, from main on. The size of a frame depends on where it calls the next one, as
  // an unwind rule does.
  uint64_t Make(const std::vector<uint64_t>& path) {
    stack_.Clear();
    for (size_t i = 0; i + 1 < path.size(); i++) stack_.Call(path[i], 3 + path[i + 1] % 5);
    return stack_.Allocate(path.back());
  }

  std::vector<char> memory_ = std::vector<char>(sizeof(KnownStacks));
  KnownStacks* known_ = new (memory_.data()) KnownStacks;
  TestStack stack_;
};

TEST_F(KnownStacksTest, NothingIsKnownAtFirst) {
  EXPECT_EQ(known_->Find(Make({1, 2, 3})), 0u);
  EXPECT_EQ(known_->bytes(), 0u);
}

TEST_F(KnownStacksTest, WhatWasAddedIsFound) {
  const uint64_t frame = Make({1, 2, 3});
  ASSERT_TRUE(Add(frame, 7));
  EXPECT_EQ(known_->Find(frame), 7u);
  EXPECT_EQ(known_->Find(Make({1, 2, 3})), 7u);
  EXPECT_FALSE(Add(Make({1, 2, 3}), 8)) << "known already";
  known_->Clear();
  EXPECT_EQ(known_->Find(Make({1, 2, 3})), 0u);
  EXPECT_EQ(known_->bytes(), 0u);
}

TEST_F(KnownStacksTest, EachWordCounts) {
  const uint64_t frame = Make({1, 2, 3, 4, 5, 6, 7, 8, 9});
  ASSERT_TRUE(Add(frame, 7));
  for (size_t i = 1; i < stack_.words().size(); i++) {  // the first one lies below the frame
    uint64_t* const word = stack_.WordAt(i);
    (*word)++;
    EXPECT_EQ(known_->Find(frame), 0u) << i;
    (*word)--;
    EXPECT_EQ(known_->Find(frame), 7u) << i;
  }
}

TEST_F(KnownStacksTest, TheFrameCounts) {
  const uint64_t frame = Make({11, 2, 3});
  ASSERT_TRUE(Add(frame, 7));
  const uint64_t other = Make({11, 11, 2, 3});
  ASSERT_NE(other, frame);
  EXPECT_EQ(known_->Find(other), 0u);
}

// One stack after the other, so that edges are cut at their beginning, at their end, and in between.
TEST_F(KnownStacksTest, StacksPartAnywhere) {
  const std::vector<std::vector<uint64_t>> paths = {{5, 10, 15, 20, 25}, {5, 10, 15, 20, 30},  {5, 10, 15, 40, 25},
                                                    {5, 10, 50, 20, 25}, {5, 60, 15, 20, 25},  {70, 10, 15, 20, 25},
                                                    {5, 10, 15, 20, 35}, {5, 10, 15, 45, 25},  {5, 10, 55, 20, 25},
                                                    {5, 65, 15, 20, 25}, {75, 10, 15, 20, 25}, {70, 60, 50, 40, 30}};
  for (uint32_t i = 0; i < paths.size(); i++) {
    EXPECT_EQ(known_->Find(Make(paths[i])), 0u) << i;
    ASSERT_TRUE(Add(Make(paths[i]), i + 1)) << i;
    for (uint32_t j = 0; j <= i; j++) EXPECT_EQ(known_->Find(Make(paths[j])), j + 1) << i << " " << j;
  }
}

// Random paths through a program that calls and returns, as a map knows them.
TEST_F(KnownStacksTest, RandomPaths) {
  std::mt19937_64 random(38);
  std::map<std::vector<uint64_t>, uint32_t> numbers;
  std::vector<uint64_t> path = {1};
  for (int step = 0; step < 100000; step++) {
    const size_t change = random() % 8;
    if (path.size() > 1 && (change < 3 || path.size() > 40)) {
      path.resize(path.size() - 1 - random() % std::min<size_t>(path.size() - 1, 3));
    } else {
      path.push_back(path.back() * 4 + random() % 4);
      path.back() %= 1000003;
    }
    const uint64_t frame = Make(path);
    const auto [entry, is_new] = numbers.try_emplace(path, numbers.size() + 1);
    ASSERT_EQ(known_->Find(frame), is_new ? 0 : entry->second) << step;
    ASSERT_TRUE(!is_new || Add(frame, entry->second)) << step;
  }
  EXPECT_GT(numbers.size(), 10000u);
  EXPECT_LT(known_->bytes(), 400 * numbers.size()) << "words are shared";
}

// A stack has another shape than the known ones though all words so far are the same: rules have changed, or the kernel
// lies.
TEST_F(KnownStacksTest, WhatDoesNotFitIsRefused) {
  const uint64_t frame = Make({5, 10, 15, 20});
  std::vector<StackWord> words = stack_.words();
  ASSERT_TRUE(Add(frame, 1));
  const auto add = [&] { return known_->Add(frame, words.data(), static_cast<uint32_t>(words.size()), 2); };
  words.pop_back();
  EXPECT_FALSE(add()) << "it ends earlier";
  words = stack_.words();
  words.push_back({words.back().at + 8, 1});
  EXPECT_FALSE(add()) << "it ends later";
  words = stack_.words();
  words[4] = {words[4].at + 8, 1};
  EXPECT_FALSE(add()) << "it goes on elsewhere";
  words.clear();
  EXPECT_FALSE(add());
  words.assign(KnownStacks::kMaxWords + 1, {frame, 1});
  EXPECT_FALSE(add()) << "too deep";
  EXPECT_EQ(known_->Find(frame), 1u);
}

TEST_F(KnownStacksTest, MemoryHasABound) {
  std::vector<std::vector<uint64_t>> paths;
  for (uint64_t i = 0;; i++) {
    paths.push_back({});
    for (uint64_t depth = 0; depth < 60; depth++) paths.back().push_back(i * 1000 + depth * 7);
    if (!Add(Make(paths.back()), static_cast<uint32_t>(i + 1))) break;
  }
  EXPECT_GT(paths.size(), 10000u);
  EXPECT_LE(known_->bytes(), KnownStacks::kMaxBytes);
  EXPECT_EQ(known_->Find(Make(paths.back())), 0u);
  for (size_t i = 0; i + 1 < paths.size(); i += 100) ASSERT_EQ(known_->Find(Make(paths[i])), i + 1);
}

#ifndef __SANITIZE_THREAD__
// A handler that interrupts Add or Clear at any instruction finds a right number or none, and its own Add is refused
// there.
TEST_F(KnownStacksTest, AHandlerMayInterruptAnything) {
  std::vector<std::vector<uint64_t>> paths;
  for (uint64_t i = 0; i < 8; i++) paths.push_back({5, 10 + 5 * (i % 3), 15, 20 + 5 * i, 25});
  TestStack other_stack;
  const uint64_t other = other_stack.Allocate(1000);
  const auto add_other = [&] {
    return known_->Add(other, other_stack.words().data(), static_cast<uint32_t>(other_stack.words().size()), 1000);
  };
  uint64_t looks = 0, found = 0, refused = 0;
  bool all_right = true;
  for (uint32_t i = 0; i <= paths.size(); i++) {
    uint64_t frame = i < paths.size() ? Make(paths[i]) : 0;
    const testing::SingleStep steps([&] {
      looks++;
      const uint32_t number = frame != 0 ? known_->Find(frame) : 0;
      all_right &= number == 0 || number == i + 1;
      found += number != 0;
      // Adding it twice is refused too.
      if (known_->Find(other) == 0) refused += !add_other();
    });
    if (frame != 0) {
      Add(frame, i + 1);
    } else {
      known_->Clear();
    }
  }
  EXPECT_TRUE(all_right);
  EXPECT_GT(looks, 1000u);
  EXPECT_GT(refused, 100u);
}

// A handler that interrupts Find may search too, and changes nothing meanwhile.
TEST_F(KnownStacksTest, AHandlerMayInterruptASearch) {
  const uint64_t frame = Make({5, 10, 15, 20, 25});
  ASSERT_TRUE(Add(frame, 7));
  TestStack other_stack;
  const uint64_t other = other_stack.Allocate(1000);
  uint64_t looks = 0, added = 0, refused = 0;
  bool all_right = true;
  uint32_t found = 0;
  {
    const testing::SingleStep steps([&] {
      looks++;
      all_right &= known_->Find(frame) == 7;
      // As often as it is added, it is forgotten with all others, which are added again.
      if (known_->Add(other, other_stack.words().data(), static_cast<uint32_t>(other_stack.words().size()), 8)) {
        added++;
        all_right &= known_->Clear() && Add(frame, 7);
      } else {
        refused++;
      }
    });
    found = known_->Find(frame);
  }
  EXPECT_EQ(found, 7u);
  EXPECT_TRUE(all_right);
  EXPECT_GT(looks, 20u);
  EXPECT_GT(added, 0u);
  EXPECT_GT(refused, 15u);
  EXPECT_TRUE(known_->Clear());
}
#endif

}  // namespace
}  // namespace heaptap
