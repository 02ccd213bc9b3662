// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/fake_clock.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/messages.h"

namespace heaptap::base {
namespace {

using ::testing::EndsWith;
using ::testing::StartsWith;

std::string Said(absl::string_view line) {
  testing::internal::CaptureStderr();
  Say(line);
  return testing::internal::GetCapturedStderr();
}

TEST(Messages, AreOneLineOfTextWhateverIsInThem) {
  EXPECT_EQ(Said("plain"), "heaptap: plain\n");
  EXPECT_EQ(Said("two\nlines"), "heaptap: two\\012lines\n") << "forged lines";
  EXPECT_EQ(Said("\x1b[2Jgone"), "heaptap: \\033[2Jgone\n") << "orders to the terminal";
  EXPECT_EQ(Said("\xc2\x9b"
                 "2J"),
            "heaptap: \\302\\2332J\n")
      << "the same in eight bits";
  EXPECT_EQ(Said("\xc3\xa9t\xc3\xa9 \xff"), "heaptap: \xc3\xa9t\xc3\xa9 \\377\n") << "UTF-8 stays";
}

TEST(Messages, AreCut) {
  const std::string said = Said(std::string(1 << 20, 'x'));
  EXPECT_LT(said.size(), 5000u);
  EXPECT_THAT(said, EndsWith("x ...\n"));
}

// stderr is a pipe that is full and that nobody reads until the test does.
class MessageThreadTest : public ::testing::Test {
 protected:
  static constexpr size_t kPage = 4096;

  MessageThreadTest() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    reader_.Reset(ends[0]);
    EXPECT_GE(fcntl(ends[1], F_SETPIPE_SZ, kPage), 0);
    EXPECT_EQ(write(ends[1], std::string(kPage, '-').data(), kPage), kPage);
    before_.Reset(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0));
    EXPECT_EQ(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    close(ends[1]);
  }
  ~MessageThreadTest() override { Restore(); }

  void Restore() { EXPECT_EQ(dup2(before_.get(), STDERR_FILENO), STDERR_FILENO); }

  // What comes, until there are so many lines.
  std::string Read(ptrdiff_t lines) {
    std::string text;
    while (std::count(text.begin(), text.end(), '\n') < lines) {
      char bytes[kPage];
      const ssize_t got = read(reader_.get(), bytes, sizeof(bytes));
      EXPECT_GT(got, 0);
      if (got <= 0) break;
      text.append(bytes, got);
    }
    return text;
  }

  base::FileDescriptor reader_;
  base::FileDescriptor before_;
};

// The second half of a line could otherwise be lost.
TEST_F(MessageThreadTest, NobodyWaitsForAReaderAndNoLineIsCut) {
  const MessageThread thread;
  constexpr int kLines = 3;
  for (int i = 0; i < kLines; i++) Say(std::string(kPage - 100, 'a' + i));
  std::string expected(kPage, '-');
  for (int i = 0; i < kLines; i++) absl::StrAppend(&expected, "heaptap: ", std::string(kPage - 100, 'a' + i), "\n");
  EXPECT_EQ(Read(kLines), expected);
}

// A process that is killed loses what waits.
TEST_F(MessageThreadTest, WhatNeedNotWaitIsWrittenAtOnce) {
  const auto expect_at_once = [](int reader) {
    EXPECT_GE(fcntl(reader, F_SETFL, O_NONBLOCK), 0);
    for (const absl::string_view line : {"one", "two"}) {
      Say(line);
      char bytes[kPage];
      const ssize_t got = read(reader, bytes, sizeof(bytes));
      EXPECT_EQ(absl::string_view(bytes, std::max<ssize_t>(got, 0)), absl::StrCat("heaptap: ", line, "\n"));
    }
  };
  const MessageThread thread;
  char rest[kPage];
  ASSERT_EQ(read(reader_.get(), rest, sizeof(rest)), static_cast<ssize_t>(kPage));
  expect_at_once(reader_.get());
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  base::FileDescriptor journal(ends[0]);
  EXPECT_EQ(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
  close(ends[1]);
  expect_at_once(journal.get());
  base::FileDescriptor log(memfd_create("log", MFD_CLOEXEC));
  const std::string path = absl::StrCat("/proc/self/fd/", log.get());
  base::FileDescriptor tail(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(dup2(log.get(), STDERR_FILENO), STDERR_FILENO);
  expect_at_once(tail.get());
}

TEST_F(MessageThreadTest, WhatIsLostIsCounted) {
  const MessageThread thread;
  int said = 0;
  for (size_t bytes = 0; bytes < 2 * MessageThread::kMaxBytes; bytes += kPage)
    Say(absl::StrCat(said++, std::string(kPage, 'x')));
  std::string text;
  while (text.find(" messages are lost here") == std::string::npos) text += Read(1);
  std::vector<std::string> lines = absl::StrSplit(absl::string_view(text).substr(kPage), '\n', absl::SkipEmpty());
  const std::string lost = lines.back();
  lines.pop_back();
  for (size_t i = 0; i < lines.size(); i++) EXPECT_THAT(lines[i], StartsWith(absl::StrCat("heaptap: ", i, "x")));
  EXPECT_GE(lines.size() * kPage, MessageThread::kMaxBytes - kPage);
  EXPECT_EQ(lost, absl::StrCat("heaptap: ", said - lines.size(),
                               " messages are lost here, because nobody read the ones before in time"));
  Say("again");
  EXPECT_EQ(Read(1), "heaptap: again\n");
}

TEST_F(MessageThreadTest, ItsEndWritesAllButWaitsNotForEver) {
  FakeClock clock;
  auto thread = std::make_unique<MessageThread>();
  Say("last");
  std::thread end([&] { thread = nullptr; });
  clock.AwaitWaiter(MessageThread::kLastPatience);
  clock.Advance(MessageThread::kLastPatience);
  end.join();
  EXPECT_EQ(Read(1), std::string(kPage, '-') + "heaptap: last\n");
  thread = std::make_unique<MessageThread>();
  Say("one");
  Say("two");
  thread = nullptr;
  Say("later");
  EXPECT_EQ(Read(3), "heaptap: one\nheaptap: two\nheaptap: later\n");
}

}  // namespace
}  // namespace heaptap::base
