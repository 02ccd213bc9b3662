// SPDX-License-Identifier: Apache-2.0
//
// Tests the messages for unknown commands and invalid arguments.
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/cli/words/command_line.h"
#include "userspace/cli/words/commands.h"
#include "userspace/cli/words/exit_status.h"

namespace heaptap::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CommandLineTest : public testing::Test {
 protected:
  int Run(const std::vector<std::string>& words, const std::vector<std::string>& program = {}) {
    CommandLine line;
    line.ForAStart({"first", "second"});
    AddRun(line, program);
    AddAttach(line);
    AddList(line);
    AddStats(line);
    AddDump(line);
    AddReport(line);
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int status = line.Run(words);
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return status;
  }

  std::string out_;
  std::string err_;
};

TEST_F(CommandLineTest, AMistypedCommandIsGuessed) {
  EXPECT_EQ(Run({"lst"}), kUsage);
  EXPECT_EQ(err_, "heaptap: unknown command lst (did you mean list?); see heaptap --help\n");
  EXPECT_EQ(Run({"atach"}), kUsage);
  EXPECT_THAT(err_, HasSubstr("did you mean attach?"));
  EXPECT_EQ(Run({"frobnicate"}), kUsage);
  EXPECT_THAT(err_, Not(HasSubstr("did you mean")));
}

TEST_F(CommandLineTest, Help) {
  EXPECT_EQ(Run({"help"}), kSuccess);
  EXPECT_THAT(out_, AllOf(HasSubstr("attach"), HasSubstr("Exit status")));
  EXPECT_EQ(Run({"help", "attach"}), kSuccess);
  EXPECT_THAT(out_, HasSubstr("--duration"));
  EXPECT_EQ(Run({"help", "lst"}), kUsage);
}

TEST_F(CommandLineTest, HelpSaysWhatAnOptionDoes) {
  EXPECT_EQ(Run({"help", "report"}), kSuccess);
  EXPECT_THAT(out_, AllOf(HasSubstr("\n  --top  "), HasSubstr("\n  --peek REGEX  "), Not(HasSubstr("Excludes"))));
  EXPECT_EQ(Run({"report", "--top", "--tree", "x"}), kUsage);
  EXPECT_THAT(err_, HasSubstr("--top excludes --tree"));
  EXPECT_EQ(Run({"help", "dump"}), kSuccess);
  EXPECT_THAT(out_, HasSubstr("PROCESS ...  "));
}

TEST_F(CommandLineTest, HelpFitsATerminal) {
  for (const std::string command : {"run", "attach", "list", "stats", "dump", "report"}) {
    EXPECT_EQ(Run({command, "--help"}), kSuccess);
    for (const absl::string_view line : absl::StrSplit(out_, '\n')) EXPECT_LE(line.size(), 80u) << line;
    // What CLI11 says of types and checks.
    EXPECT_THAT(out_, AllOf(Not(HasSubstr("{")), Not(HasSubstr(":INT")), Not(HasSubstr("SIZE ["))));
  }
  EXPECT_EQ(Run({"run", "--help"}), kSuccess);
  EXPECT_THAT(out_, AllOf(HasSubstr("Usage: heaptap run [OPTIONS] [--] PROGRAM [ARGUMENTS...]\n"),
                          HasSubstr("\n  --high-water[=PERCENT]  "), HasSubstr("\n  --interval BYTES  "),
                          HasSubstr("\n  --report auto|always|never  ")));
}

TEST_F(CommandLineTest, NoWordsShowAStart) {
  EXPECT_EQ(Run({}), kUsage);
  EXPECT_EQ(err_, "heaptap: no command given; heaptap --help lists all commands\nfirst\nsecond\n");
}

TEST_F(CommandLineTest, AWordThatIsNotExpectedIsNamed) {
  EXPECT_EQ(Run({"--frob"}), kUsage);
  EXPECT_EQ(err_, "heaptap: unknown option --frob; see heaptap --help\n");
  EXPECT_EQ(Run({"--frob", "list"}), kUsage);
  EXPECT_EQ(err_, "heaptap: unknown option --frob; see heaptap --help\n");
  EXPECT_EQ(Run({"list", "--frob"}), kUsage);
  EXPECT_EQ(err_, "heaptap: unknown option --frob; see heaptap list --help\n");
  EXPECT_EQ(Run({"list", "c"}), kUsage);
  EXPECT_EQ(err_, "heaptap: unexpected argument c; see heaptap list --help\n");
}

TEST_F(CommandLineTest, AValueThatIsNoneIsNamed) {
  EXPECT_EQ(Run({"report", "x", "--limit", "abc"}), kUsage);
  EXPECT_EQ(err_, "heaptap: --limit: 'abc' is not a whole number of 0 or more; see heaptap report --help\n");
  EXPECT_EQ(Run({"report", "x", "--limit", "-3"}), kUsage);
  EXPECT_EQ(err_, "heaptap: --limit: '-3' is not a whole number of 0 or more; see heaptap report --help\n");
  EXPECT_EQ(Run({"report", "x", "--smallest", "-1"}), kUsage);
  EXPECT_EQ(err_, "heaptap: --smallest: '-1' is not 0 or more; see heaptap report --help\n");
  EXPECT_EQ(Run({"report", "x", "--smallest", "nan"}), kUsage);
  EXPECT_EQ(err_, "heaptap: --smallest: 'nan' is not a number; see heaptap report --help\n");
  EXPECT_EQ(Run({"report", "x", "--by", "y"}), kUsage);
  EXPECT_EQ(err_,
            "heaptap: --by: 'y' is none of function, line, library, thread, size, age; see heaptap report --help\n");
  EXPECT_EQ(Run({"run", "--interval", "abc", "true"}), kUsage);
  EXPECT_EQ(err_,
            "heaptap: --interval: 'abc' is not a size; use a number with K, M or G, such as 64M; see heaptap run "
            "--help\n");
  EXPECT_EQ(Run({"run", "--lg-sample", "99", "true"}), kUsage);
  EXPECT_EQ(err_, "heaptap: --lg-sample: '99' is not a whole number from 0 to 46; see heaptap run --help\n");
}

TEST_F(CommandLineTest, TheHintNamesTheCommand) {
  EXPECT_EQ(Run({"attach", "--nonsense"}), kUsage);
  EXPECT_THAT(err_, HasSubstr("see heaptap attach --help"));
  EXPECT_EQ(Run({"--nonsense"}), kUsage);
  EXPECT_THAT(err_, HasSubstr("see heaptap --help"));
}

TEST_F(CommandLineTest, AttachTakesAPidWithoutAnOption) {
  EXPECT_EQ(Run({"attach"}), kUsage);
  EXPECT_THAT(err_, HasSubstr("heaptap attach PID"));
  EXPECT_EQ(Run({"attach", "1", "-p", "1"}), kUsage);
  // A PID that cannot exist: the maximum is 2^22.
  EXPECT_EQ(Run({"attach", "99999999"}), kNoTarget) << err_;
}

TEST_F(CommandLineTest, APercentageBehindABlankIsNoProgram) {
  EXPECT_EQ(Run({"run", "--high-water", "20"}, {"--", "true"}), kUsage);
  EXPECT_THAT(err_, HasSubstr("--high-water=20"));
}

}  // namespace
}  // namespace heaptap::cli
