// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/process/start_facts.h"

namespace heaptap::process {
namespace {

using ::testing::ElementsAre;

TEST(StartFacts, OfAChild) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    dup2(ends[0], STDIN_FILENO);
    close(ends[0]);
    close(ends[1]);
    const char* arguments[] = {"cat", "", "-", nullptr};
    const char* environment[] = {"XLD_PRELOAD=no", "LD_PRELOAD=/no/such.so", nullptr};
    // It has started its program when it complains about the empty name.
    close(STDERR_FILENO);
    execve("/bin/cat", const_cast<char**>(arguments), const_cast<char**>(environment));
    _exit(1);
  }
  close(ends[0]);
  absl::StatusOr<StartFacts> facts = ReadStartFacts(pid);
  while (facts.ok() && facts->preload.empty()) facts = ReadStartFacts(pid);  // until its exec
  EXPECT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->preload, "/no/such.so");
  EXPECT_THAT(facts->arguments, ElementsAre("cat", "", "-"));
  EXPECT_FALSE(facts->is_secure);
  EXPECT_FALSE(facts->has_other_mounts);
  const absl::StatusOr<StartFacts> copy = DecodeStartFacts(Encode(*facts));
  ASSERT_TRUE(copy.ok());
  EXPECT_EQ(copy->preload, facts->preload);
  EXPECT_EQ(copy->arguments, facts->arguments);
  close(ends[1]);
  waitpid(pid, nullptr, 0);
  EXPECT_FALSE(ReadStartFacts(pid).ok());
}

TEST(StartFacts, ForeignText) {
  for (const char* text : {"", "1", "12", "x0", "00"}) EXPECT_FALSE(DecodeStartFacts(text).ok()) << text;
  const absl::StatusOr<StartFacts> facts = DecodeStartFacts(std::string("11a\0b\0", 6));
  ASSERT_TRUE(facts.ok());
  EXPECT_TRUE(facts->is_secure && facts->has_other_mounts);
  EXPECT_THAT(facts->arguments, ElementsAre("b"));
}

TEST(ShellWords, AreQuotedAndBounded) {
  EXPECT_EQ(ShellWords({"a", "b c", "it's", "", "--x=/y"}), "a 'b c' 'it'\\''s' '' --x=/y");
  EXPECT_EQ(ShellWords({"\x1b[m\xff"}), "'?[m?'");
  EXPECT_LT(ShellWords(std::vector<std::string>(1000, "word")).size(), 500);
  EXPECT_LT(ShellWords({std::string(100000, 'x')}).size(), 500);
}

}  // namespace
}  // namespace heaptap::process
