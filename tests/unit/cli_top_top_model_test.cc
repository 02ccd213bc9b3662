// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/base/clock.h"
#include "userspace/cli/top/top_model.h"

namespace heaptap::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

base::Instant At(double seconds) { return base::Instant() + absl::Seconds(seconds); }

TopProcess Process(pid_t pid, const std::string& command, double live) {
  TopProcess process;
  process.summary.pid = pid;
  process.summary.process_id = static_cast<uint64_t>(pid) + 1000;
  process.summary.command = command;
  process.summary.live_bytes = live;
  process.summary.peak_bytes = 2 * live;
  if (pid == 10) process.resident_bytes = 7 << 20;
  return process;
}

class TopModelTest : public ::testing::Test {
 protected:
  TopModelTest() { Update(0); }

  void Update(double seconds) {
    model_.Update({Process(10, "small", 1024), Process(11, "large", 1 << 20), Process(12, "growing", 2048 * seconds)},
                  At(seconds));
  }
  std::vector<std::string> Screen(size_t width = 80, size_t height = 24) {
    std::vector<std::string> texts;
    for (const TopLine& line : model_.Lines(width, height, false)) texts.push_back(line.text);
    return texts;
  }
  // The PIDs of the rows, from the top.
  std::string Pids() {
    std::vector<std::string> pids;
    for (const std::string& line : Screen()) {
      if (line.starts_with("     1")) pids.push_back(line.substr(5, 2));
    }
    return absl::StrJoin(pids, " ");
  }

  TopModel model_;
};

TEST_F(TopModelTest, TheLargestComesFirst) {
  EXPECT_EQ(Pids(), "11 10 12");
  EXPECT_EQ(model_.selected(), 11);
  EXPECT_THAT(Screen()[0], StartsWith("heaptap top: 3 processes, 1.0M live"));
}

// Growth comes from the history of the daemon, not from what top itself has seen.
TEST_F(TopModelTest, Growth) {
  Update(30);
  Update(60);
  EXPECT_THAT(Screen()[0], Not(HasSubstr("growth")));
  model_.Press(kKeyRight);
  EXPECT_THAT(Screen()[4], HasSubstr("growing          120.0K         -")) << "no history";
  const auto growing = [](TopProcess process, double per_minute, double error, double seconds) {
    process.summary.growth_per_minute = per_minute;
    process.summary.growth_error = error;
    process.summary.growth_seconds = seconds;
    return process;
  };
  model_.Update({Process(10, "small", 1024), growing(Process(11, "large", 1 << 20), -819200, 512000, 600),
                 growing(Process(12, "growing", 1 << 20), 2 << 20, 1 << 19, 120)},
                At(90));
  EXPECT_THAT(Screen()[0], HasSubstr("; growth of the last 10m00s, ~ may be noise"));
  EXPECT_EQ(Pids(), "12 11 10");
  EXPECT_THAT(Screen()[2], HasSubstr(" +2.0M "));
  EXPECT_THAT(Screen()[3], HasSubstr(" -800.0K~ "));
  EXPECT_THAT(Screen()[4], HasSubstr(" - ")) << "unknown";
  EXPECT_THAT(model_.Table(), HasSubstr(" -800.0K~ "));
  model_.Press('r');
  EXPECT_EQ(Pids(), "10 11 12");
}

TEST_F(TopModelTest, OtherColumns) {
  Update(60);
  EXPECT_TRUE(model_.SortBy("rss"));
  EXPECT_EQ(Pids(), "10 11 12");
  EXPECT_THAT(Screen()[2], HasSubstr("    7.0M"));
  EXPECT_TRUE(model_.SortBy("command"));
  EXPECT_EQ(Pids(), "12 11 10");
  EXPECT_TRUE(model_.SortBy("pid"));
  EXPECT_EQ(Pids(), "10 11 12");
  EXPECT_FALSE(model_.SortBy("nonsense"));
  for (int i = 0; i < 20; i++) model_.Press(kKeyLeft);
}

TEST_F(TopModelTest, AProcessStaysSelectedWhereverItMoves) {
  model_.Press(kKeyDown);
  EXPECT_EQ(model_.selected(), 10);
  model_.Press('r');
  EXPECT_EQ(model_.selected(), 10);
  model_.Press(kKeyEnd);
  EXPECT_EQ(model_.selected(), 11);
  model_.Press(kKeyHome);
  model_.Press(kKeyUp);
  EXPECT_EQ(model_.selected(), 12);
  model_.Update({Process(10, "small", 1)}, At(100));
  EXPECT_EQ(model_.selected(), 10) << "the selected one has ended";
  model_.Update({}, At(101));
  EXPECT_EQ(model_.selected(), 0);
  EXPECT_EQ(model_.Press(kKeyEnter), TopAction::kNone);
  EXPECT_EQ(model_.Press('d'), TopAction::kNone);
  EXPECT_THAT(absl::StrJoin(Screen(), "\n"), HasSubstr("no process is recorded"));
}

TEST_F(TopModelTest, Filter) {
  model_.Press('/');
  for (const char letter : std::string("LARx")) model_.Press(letter);
  EXPECT_EQ(Pids(), "");
  model_.Press(kKeyBackspace);
  EXPECT_EQ(Pids(), "11");
  EXPECT_EQ(model_.Press('q'), TopAction::kNone) << "a letter of the name";
  model_.Press(kKeyBackspace);
  model_.Press(kKeyEnter);
  EXPECT_EQ(Pids(), "11");
  EXPECT_THAT(Screen().back(), HasSubstr("[LAR]"));
  model_.Press('/');
  model_.Press(kKeyEscape);
  EXPECT_EQ(Pids(), "11 10 12");
}

TEST_F(TopModelTest, Pause) {
  model_.Press(' ');
  model_.Update({}, At(1));
  EXPECT_EQ(Pids(), "11 10 12");
  EXPECT_THAT(Screen().back(), StartsWith("PAUSED"));
  model_.Press(' ');
  model_.Update({}, At(2));
  EXPECT_EQ(Pids(), "");
}

TEST_F(TopModelTest, CallPathsScroll) {
  EXPECT_EQ(model_.Press(kKeyEnter), TopAction::kShowPaths);
  std::string text;
  for (int i = 0; i < 100; i++) absl::StrAppend(&text, "line ", i, "\n");
  model_.ShowPaths(11, text);
  EXPECT_EQ(Screen()[1], "line 0");
  EXPECT_EQ(Screen()[22], "line 21");
  model_.Press(kKeyDown);
  EXPECT_EQ(Screen()[1], "line 1");
  model_.Press(kKeyPageDown);
  EXPECT_EQ(Screen()[1], "line 23");
  model_.Press(kKeyEnd);
  EXPECT_EQ(Screen()[22], "line 99");
  EXPECT_EQ(model_.Press('u'), TopAction::kShowPaths);
  EXPECT_EQ(model_.Press('d'), TopAction::kDump);
  EXPECT_EQ(model_.selected(), 11);
  for (const int key : std::initializer_list<int>{'m', 'q', 'x', kKeyBackspace, '2'})
    EXPECT_EQ(model_.Press(key), TopAction::kNone);
  EXPECT_EQ(model_.Press(kKeyEnter), TopAction::kMark);
  EXPECT_EQ(model_.mark(), "q2");
  EXPECT_EQ(model_.Press('m'), TopAction::kNone);
  EXPECT_EQ(model_.Press(kKeyEnter), TopAction::kNone) << "an empty mark";
  EXPECT_EQ(model_.Press('m'), TopAction::kNone);
  EXPECT_EQ(model_.Press(kKeyEscape), TopAction::kNone);
  EXPECT_EQ(model_.Press('q'), TopAction::kNone);
  EXPECT_EQ(Pids(), "11 10 12");
  EXPECT_EQ(model_.Press('q'), TopAction::kQuit);
}

TEST_F(TopModelTest, HelpAndMessages) {
  model_.Press('h');
  EXPECT_THAT(absl::StrJoin(Screen(), "\n"), HasSubstr("Enter                  its call paths"));
  EXPECT_EQ(model_.Press(kKeyEscape), TopAction::kNone);
  model_.Say("something has happened");
  EXPECT_EQ(Screen().back(), "something has happened");
  model_.Press(kKeyDown);
  EXPECT_THAT(Screen().back(), Not(HasSubstr("something")));
}

TEST_F(TopModelTest, AnySize) {
  for (int seconds = 1; seconds < 200; seconds++) Update(seconds);
  for (const int page : {0, static_cast<int>('h'), static_cast<int>(kKeyEnter)}) {
    if (page == kKeyEnter) model_.ShowPaths(11, "one\ntwo\nthree");
    if (page == 'h') model_.Press('h');
    for (size_t height = 0; height < 30; height++) {
      for (size_t width = 1; width < 130; width += 7) {
        const std::vector<std::string> screen = Screen(width, height);
        EXPECT_EQ(screen.size(), height);
        for (const std::string& line : screen) EXPECT_LE(line.size(), width);
      }
    }
  }
}

TEST_F(TopModelTest, NamesArePrintable) {
  model_.Update({Process(10, "evil\x1b[2J\n", 1)}, At(1));
  for (const std::string& line : Screen()) {
    for (const char letter : line) EXPECT_GE(letter, ' ');
  }
}

TEST_F(TopModelTest, Table) {
  EXPECT_THAT(model_.Table(), HasSubstr("     11 large"));
  EXPECT_THAT(model_.Table(), Not(HasSubstr("\n\n")));
}

}  // namespace
}  // namespace heaptap::cli
