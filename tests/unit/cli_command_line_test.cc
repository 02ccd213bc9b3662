// SPDX-License-Identifier: Apache-2.0
//
// Tests the messages for unknown commands and invalid arguments.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/cli/command_line.h"
#include "userspace/cli/commands.h"
#include "userspace/cli/exit_status.h"

namespace heaptap::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CommandLineTest : public testing::Test {
 protected:
  int Run(const std::vector<std::string>& words, const std::vector<std::string>& program = {}) {
    CommandLine line;
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
