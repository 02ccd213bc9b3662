// SPDX-License-Identifier: Apache-2.0
//
// Tests that stacks finished by the collector are those that the kernel would have found.
#include <algorithm>
#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/unwind_simulation.h"
#include "userspace/unwind/finish.h"

namespace heaptap::harness {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr uint64_t kSignalStack = 0x20000000;  // below the other one, as on a heap

// A random program whose stack grows as processors and compilers make it.
class RandomProcess {
 public:
  explicit RandomProcess(uint64_t seed) : process(8), random_(seed) {
    process.kernel.memory[kSignalStack].resize(2 * kPage);
    process.kernel.mappings.push_back({.start = kSignalStack, .end = kSignalStack + 2 * kPage});
    rsp_ = kStackTop - 8 * Number(1, 100);
    rbp_ = Chance(50) ? 0 : Number(0, 1000);
    Enter(process.Function(Chance(80) ? kEnd : 0, SomePlace()) + 1);
    most_words_ = Chance(50) ? 10 : 60;
    const uint64_t depth = Chance(85) ? Number(0, 40) : Number(120, 140);
    for (uint64_t i = 0; i < depth && rsp_ > process.stack_begin() + kPage; i++) Call();
    process.Load();
    process.registers.rip = rip_;
    process.registers.rsp() = rsp_;
    process.registers.rbp() = rbp_;
    for (const int number : {0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15}) {
      process.registers.numbers[number] = registers_[number];
    }
    if (Chance(30)) Damage();
  }

  Simulation process;
  bool has_signal_stack = false;
  bool is_damaged = false;

 private:
  uint64_t Number(uint64_t least, uint64_t most) { return least + random_() % (most - least + 1); }
  bool Chance(uint64_t percent) { return random_() % 100 < percent; }
  Place SomePlace() { return Chance(10) ? kNoFile : Chance(50) ? kProgram : kLibrary; }

  void Push(uint64_t word) { process.kernel.WriteWord(rsp_ -= 8, word); }

  // Execution is now in a function.
  void Enter(uint64_t rip) {
    rip_ = rip;
    for (uint64_t& word : registers_) word = random_();
  }

  void Call() {
    if (Chance(8)) return Signal();
    Push(rip_);
    const uint64_t cfa = rsp_ + 8;
    const uint64_t words = Number(1, most_words_);
    const Place place = SomePlace();
    uint32_t rule = 0;
    switch (place == kNoFile      ? 1
            : Number(0, 20) == 0  ? 5
            : Number(0, 20) == 0  ? 6
            : Number(0, 300) == 0 ? 7
                                  : Number(0, 4)) {
      case 0:  // RBP is a register like the others, saved or left alone
        if (Chance(50)) {
          rsp_ -= 8 * words;
          rule = Rule(HEAPTAP_CFA_RSP, static_cast<int>(words + 1));
        } else {
          Push(rbp_);
          rsp_ -= 8 * words;
          rbp_ = random_();
          rule = Rule(HEAPTAP_CFA_RSP, static_cast<int>(words + 2), HEAPTAP_RBP_AT_CFA, -2);
        }
        break;
      case 1:  // by the frame pointer, with a rule or without
        Push(rbp_);
        rbp_ = rsp_;
        rsp_ -= 8 * words;
        rule = Chance(80) ? Rule(HEAPTAP_CFA_RBP, 2, HEAPTAP_RBP_AT_CFA, -2) : 0;
        break;
      case 2:  // an aligned stack
        rsp_ &= ~uint64_t{63};
        Push(rbp_);
        rbp_ = rsp_;
        Push(cfa);
        rsp_ -= 8 * words;
        rule = Rule(HEAPTAP_CFA_DEREF_RBP, heaptap_unwind_pair(-1, 0), HEAPTAP_RBP_AT_RBP, 0);
        break;
      case 3:
        Push(cfa - 16);
        rsp_ -= 8 * words;
        rule = Rule(HEAPTAP_CFA_DEREF_RSP, heaptap_unwind_pair(static_cast<int>(words), 2),
                    Chance(95) ? HEAPTAP_RBP_SAME : HEAPTAP_RBP_LOST);
        break;
      case 4:  // a stub that is bound lazily
        Enter(process.Function(Rule(HEAPTAP_CFA_PLT), place) + (Chance(50) ? 6 : 11));
        if ((rip_ & 15) >= 11) Push(random_());
        return;
      case 5: {  // only where it is the last one, or a signal comes
        rsp_ -= 8 * words;
        const int number = Chance(50) ? 3 : 10;
        Enter(process.Function(Rule(HEAPTAP_CFA_REGISTER, heaptap_unwind_pair(number, 1)), place) + Number(0, 15));
        registers_[number] = cfa - 8;
        if (Chance(95)) Signal();
        return;
      }
      case 6: {  // by RBX, which what it calls saves
        Push(random_());
        const uint64_t rbx = rsp_;
        rsp_ -= 8 * words;
        Enter(process.Function(Rule(HEAPTAP_CFA_REGISTER, heaptap_unwind_pair(3, 2)) | heaptap_unwind_rbx(1), place) +
              Number(1, 15));
        Push(rip_);
        Push(rbx);
        rsp_ -= 8 * words;
        rule = Rule(HEAPTAP_CFA_RSP, static_cast<int>(words + 2)) | heaptap_unwind_rbx(1);
        break;
      }
      case 7:  // a rule that cannot be encoded, or the beginning of a stack that was made to begin there
        rsp_ -= 8 * words;
        process.Function(0, place);
        Enter(process.Function(Rule(Chance(50) ? HEAPTAP_CFA_UNKNOWN : HEAPTAP_CFA_END), place));
        return;
    }
    Enter(process.Function(rule, place) + Number(1, 15));
  }

  // The handler is called as by the code that restores the registers.
  void Signal() {
    Registers before;
    for (int number = 0; number < 16; number++) before.numbers[number] = registers_[number];
    before.rbp() = rbp_;
    before.rsp() = rsp_;
    if (Chance(10)) {
      has_signal_stack = true;
      rsp_ = kSignalStack + 2 * kPage;
    } else {
      rsp_ -= 128;
    }
    constexpr int kWord[16] = {13, 12, 14, 11, 9, 8, 10, 15, 0, 1, 2, 3, 4, 5, 6, 7};
    uint64_t words[23] = {};
    for (int number = 0; number < 16; number++) words[kWord[number]] = before.numbers[number];
    words[16] = rip_;
    for (int i = 22; i >= 0; i--) Push(words[i]);
    rsp_ -= 40;
    Enter(process.Function(Rule(HEAPTAP_CFA_SIGNAL), kLibrary) + Number(1, 15));
    Push(rip_);
    Enter(process.Function(kPlain) + Number(0, 15));
  }

  void Damage() {
    is_damaged = true;
    for (uint64_t i = Number(1, 3); i > 0; i--) {
      const uint64_t address = process.registers.rsp() + 8 * Number(0, 64);
      if (address > kStackTop - 8 || (address < process.stack_begin() && address >= kSignalStack + 2 * kPage)) continue;
      const uint64_t words[] = {0, random_(), process.registers.rsp() + 8 * Number(0, 64), kCodeAt[kProgram] + 5};
      process.kernel.WriteWord(address, words[Number(0, 3)]);
    }
    if (Chance(40)) process.registers.rbp() = Chance(50) ? random_() : process.registers.rsp() - 8 * Number(1, 20);
  }

  std::mt19937_64 random_;
  uint64_t rsp_, rbp_, rip_, most_words_;
  uint64_t registers_[16] = {};
};

// The walk that cannot find the rule of frame `cut`, finished by the collector.
heaptap_stack FinishAt(Simulation& process, uint32_t cut) {
  process.kernel.map("scratch").Clear();  // or the walk before would serve
  process.kernel.before_lookup = [&](std::string_view map) {
    if (map != "rule_cache") return;
    process.kernel.map("rule_cache").Clear();
    process.kernel.map("scratch").ForEach<char>([&](char& entry) {
      host_forget_mappings(&entry);
      if (host_frames_found(&entry) == cut + 1) process.kernel.busy = kMappingTries;
    });
  };
  std::optional<heaptap_stack> kept = process.kernel.Sample(process.registers);
  process.kernel.before_lookup = nullptr;
  EXPECT_TRUE(kept.has_value() && kept->end == HEAPTAP_STACK_UNFINISHED && kept->count == cut + 1);
  std::vector<RawStack> raw = process.kernel.TakeRawStacks();
  EXPECT_THAT(raw, SizeIs(1));
  if (raw.size() != 1) return {};
  return unwind::FinishStack(raw[0].header, unwind::StackCopy(raw[0].memory),
                             [&](uint64_t address) { return process.FindRule(address); });
}

TEST(FinishStack, SaysWhatTheKernelSays) {
  uint64_t finished = 0;
  uint64_t cut_off = 0;
  uint64_t deep = 0;
  uint64_t ends[HEAPTAP_STACK_ENDS] = {};
  for (uint64_t seed = 0; seed < 1000; seed++) {
    RandomProcess random(seed);
    Simulation& process = random.process;
    const heaptap_stack whole = process.kernel.Walk(process.registers);
    ends[whole.end]++;
    deep += whole.count > HEAPTAP_INNER_FRAMES && whole.frames[HEAPTAP_INNER_FRAMES] == HEAPTAP_FRAMES_LEFT_OUT;
    ASSERT_NE(whole.end, HEAPTAP_STACK_UNFINISHED);
    const heaptap_stack again = process.kernel.Walk(process.registers);
    ASSERT_EQ(again.end, whole.end) << "seed " << seed << ", with all rules in the cache";
    ASSERT_EQ(Frames(again), Frames(whole)) << "seed " << seed << ", with all rules in the cache";
    for (uint32_t cut = 0; cut < whole.count; cut++) {
      const heaptap_stack stack = FinishAt(process, cut);
      finished++;
      if (stack.end == HEAPTAP_STACK_RAW_ENDED) {
        // Only what is not in the copy can be missing: another stack, or no memory at all.
        cut_off++;
        EXPECT_TRUE(random.has_signal_stack || random.is_damaged || whole.end == HEAPTAP_STACK_NO_MEMORY ||
                    whole.end == HEAPTAP_STACK_NO_RULE)
            << "seed " << seed << ", cut at " << cut << ": " << whole.end;
        ASSERT_LE(stack.count, whole.count);
        const uint32_t inner = std::min<uint32_t>(stack.count, HEAPTAP_INNER_FRAMES);
        EXPECT_TRUE(std::equal(stack.frames, stack.frames + inner, whole.frames));
        continue;
      }
      EXPECT_EQ(stack.end, whole.end) << "seed " << seed << ", cut at " << cut;
      ASSERT_EQ(Frames(stack), Frames(whole)) << "seed " << seed << ", cut at " << cut;
    }
  }
  // The cases occur as intended.
  EXPECT_GT(finished, 16000);
  EXPECT_LT(cut_off, finished / 5);
  EXPECT_GT(deep, 4);
  for (const heaptap_stack_end end : {HEAPTAP_STACK_WHOLE, HEAPTAP_STACK_NO_CODE, HEAPTAP_STACK_NO_RULE,
                                      HEAPTAP_STACK_NO_MEMORY, HEAPTAP_STACK_STUCK}) {
    EXPECT_GT(ends[end], 8) << end;
  }
}

// --- by hand ---------------------------------------------------------------------------------------------------------

struct Copy {
  heaptap_raw_stack raw = {};
  std::vector<uint8_t> memory;

  Copy(uint64_t rip, std::vector<uint64_t> words) {
    raw.memory_begin = 0x10000;
    raw.frame.rip = rip;
    raw.frame.rsp = raw.memory_begin;
    raw.rip_bits = 1;
    raw.stack.count = 1;
    raw.stack.end = HEAPTAP_STACK_UNFINISHED;
    raw.stack.frames[0] = rip;
    memory.resize(words.size() * 8);
    if (!words.empty()) memcpy(memory.data(), words.data(), memory.size());
  }

  heaptap_stack Finish(const unwind::RuleFinder& find_rule) const {
    return unwind::FinishStack(raw, unwind::StackCopy(memory), find_rule);
  }
};

TEST(FinishStack, EndsWhereTheCopyDoes) {
  Copy copy(100, {200, 300});
  heaptap_stack stack = copy.Finish([](uint64_t) { return kPlain; });
  EXPECT_THAT(Frames(stack), ElementsAre(100, 200, 300));
  EXPECT_EQ(stack.end, HEAPTAP_STACK_RAW_ENDED);
  // Half a word is none.
  copy.memory.resize(12);
  stack = copy.Finish([](uint64_t) { return kPlain; });
  EXPECT_THAT(Frames(stack), ElementsAre(100, 200));
  EXPECT_EQ(stack.end, HEAPTAP_STACK_RAW_ENDED);
  copy.memory.clear();
  stack = copy.Finish([](uint64_t) { return kPlain; });
  EXPECT_THAT(Frames(stack), ElementsAre(100));
  EXPECT_EQ(stack.end, HEAPTAP_STACK_RAW_ENDED);
}

TEST(FinishStack, EndsWhereAChunkIsMissing) {
  constexpr uint64_t kWords = HEAPTAP_CHUNK_BYTES / 8;
  Copy copy(100, std::vector<uint64_t>(3 * kWords, 77));
  // The return address is read there, or half of it, or not.
  const struct {
    uint64_t offset;
    bool ends;
  } cases[] = {{kWords * 8 - 8, false},
               {kWords * 8 - 4, true},
               {kWords * 8, true},
               {2 * kWords * 8 - 4, true},
               {2 * kWords * 8, false}};
  copy.raw.missing[0] = 1 << 1;
  for (const auto& [offset, ends] : cases) {
    copy.raw.frame.rsp = copy.raw.memory_begin + offset;
    const heaptap_stack stack =
        copy.Finish([](uint64_t address) { return address == 99 ? std::optional(kPlain) : std::optional(kEnd); });
    EXPECT_EQ(stack.end, ends ? HEAPTAP_STACK_RAW_ENDED : HEAPTAP_STACK_WHOLE) << offset;
  }
}

TEST(FinishStack, AsksForTheCallsAndTheInstructionsThatComeNext) {
  Copy copy(100, {200});
  std::vector<uint64_t> asked;
  const auto ask = [&](uint64_t address) -> std::optional<uint32_t> {
    asked.push_back(address);
    return asked.size() == 2 ? kEnd : kPlain;
  };
  EXPECT_EQ(copy.Finish(ask).end, HEAPTAP_STACK_WHOLE);
  EXPECT_THAT(asked, ElementsAre(99, 199));
  asked.clear();
  copy.raw.rip_bits = 0;
  copy.Finish(ask);
  EXPECT_THAT(asked, ElementsAre(100, 199));
}

TEST(FinishStack, NoCode) {
  Copy copy(100, {200});
  EXPECT_EQ(copy.Finish([](uint64_t) { return std::nullopt; }).end, HEAPTAP_STACK_NO_CODE);
  heaptap_stack stack =
      copy.Finish([](uint64_t address) { return address == 99 ? std::optional(kPlain) : std::nullopt; });
  EXPECT_THAT(Frames(stack), ElementsAre(100));  // what is no code is no frame
  EXPECT_EQ(stack.end, HEAPTAP_STACK_NO_CODE);
}

TEST(FinishStack, GoesOnToTheLastFrameThatFits) {
  Copy copy(100, std::vector<uint64_t>(HEAPTAP_MAX_WALK, 77));
  for (const uint32_t found : {1, 126, 127}) {
    copy.raw.stack.count = found;
    heaptap_stack stack = copy.Finish([](uint64_t) { return kPlain; });
    EXPECT_EQ(stack.count, HEAPTAP_MAX_FRAMES);
    EXPECT_EQ(stack.end, HEAPTAP_STACK_TRUNCATED);
  }
}

// The kernel's walk may end in the inner frames, right at the first frame that is left out, or in the outer frames.
TEST(FinishStack, GoesOnWithADeepStack) {
  std::vector<uint64_t> all;
  for (uint64_t i = 0; i < 300; i++) all.push_back(1000 + i);
  for (const size_t found : {1, 80, 81, 126, 127, 128, 172, 173, 174, 219, 220, 299, 300}) {
    const std::vector<uint64_t> walked(all.begin(), all.begin() + static_cast<ptrdiff_t>(found));
    Copy copy(walked.back(), {all.begin() + static_cast<ptrdiff_t>(found), all.end()});
    const std::vector<uint64_t> kept = KeptFrames(walked);
    copy.raw.stack.count = kept.size();
    std::ranges::copy(kept, copy.raw.stack.frames);
    const auto rule = [&](uint64_t address) { return address + 1 == all.back() ? kEnd : kPlain; };
    const heaptap_stack stack = copy.Finish(rule);
    EXPECT_EQ(stack.end, HEAPTAP_STACK_WHOLE);
    EXPECT_EQ(Frames(stack), KeptFrames(all)) << found;
    // The last address is none of code.
    const heaptap_stack without = copy.Finish(
        [&](uint64_t address) { return address + 1 == all.back() ? std::nullopt : std::optional<uint32_t>(kPlain); });
    EXPECT_EQ(without.end, HEAPTAP_STACK_NO_CODE);
    std::vector<uint64_t> expected = KeptFrames(all);
    expected.pop_back();
    EXPECT_EQ(Frames(without), expected) << found;
  }
}

TEST(FinishStack, HostileMemoryEndsSomehow) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; i++) {
    std::vector<uint64_t> words(random() % 64);
    for (uint64_t& word : words) word = random() % 3 != 0 ? 0x10000 + random() % 600 : random();
    Copy copy(random(), words);
    copy.raw.frame.rsp += random() % 4 != 0 ? random() % 512 : random();
    copy.raw.frame.rbp = random() % 2 != 0 ? 0x10000 + random() % 600 : random();
    copy.raw.frame.others = random() % 3 != 0 ? random() % 2 : 0x10000 + random() % 600;
    for (__u64& word : copy.raw.registers) word = random() % 2 != 0 ? 0x10000 + random() % 600 : random();
    const heaptap_stack stack = copy.Finish([&](uint64_t) { return static_cast<uint32_t>(random()); });
    EXPECT_LE(stack.count, HEAPTAP_MAX_FRAMES);
    EXPECT_LT(stack.end, HEAPTAP_STACK_UNFINISHED);
  }
}

}  // namespace
}  // namespace heaptap::harness
