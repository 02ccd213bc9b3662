// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/folder.h"
#include "userspace/recording/ended_list.h"

namespace heaptap::recording {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

profile::EndedProcess Process(pid_t pid) {
  profile::EndedProcess process;
  process.summary.pid = pid;
  process.summary.process_id = 7;
  process.summary.command = "a \"name\"\n";
  process.summary.live_bytes = 1.5;
  process.ended = absl::FromUnixMicros(1'700'000'000'123'456);
  process.status = 9;
  process.by_oom_kill = true;
  process.dump = "/var/lib/x.heap";
  return process;
}

class EndedListTest : public ::testing::Test {
 protected:
  size_t Lines() const { return static_cast<size_t>(std::ranges::count(ReadFile(path_), '\n')); }

  TemporaryFolder folder_;
  const std::string path_ = folder_ / "ended";
  base::Background files_{base::Background::Place::kCaller};
};

TEST_F(EndedListTest, TheNextRecorderHasThem) {
  EndedList first;
  ASSERT_TRUE(first.KeepIn(path_, files_).ok());
  EXPECT_THAT(first.all(), IsEmpty());
  first.Add(Process(1));
  first.Add(Process(2));
  EXPECT_EQ(first.all().front().summary.process_id, 7u);
  EndedList second;
  ASSERT_TRUE(second.KeepIn(path_, files_).ok());
  ASSERT_THAT(second.all(), SizeIs(2));
  const profile::EndedProcess& last = second.all().front();
  EXPECT_EQ(last.summary.pid, 2);
  EXPECT_EQ(last.summary.process_id, 0u) << "of books that may be gone";
  EXPECT_EQ(last.summary.live_bytes, 1.5);
  EXPECT_EQ(last.ended, Process(2).ended);
  EXPECT_EQ(last.status, 9);
  EXPECT_TRUE(last.by_oom_kill);
  EXPECT_EQ(last.dump, "/var/lib/x.heap");
  EXPECT_EQ(second.all().back().summary.pid, 1);
}

// Half a line, a line of another program, one of an older version, and one without a PID.
TEST_F(EndedListTest, LinesThatCannotBeReadArePassedOver) {
  WriteFile(path_,
            "{\"pid\": 3, \"status\": 256}\n"
            "[1, 2]\n\xff\n"
            "{\"pid\": 0}\n"
            "{\"pid\": \"4\"}\n"
            "{\"pid\": 5, \"ended\": \"yesterday\"}\n"
            "{\"pid\": 6, \"comm");
  EndedList list;
  ASSERT_TRUE(list.KeepIn(path_, files_).ok());
  ASSERT_THAT(list.all(), SizeIs(1));
  EXPECT_EQ(list.all().front().summary.pid, 3);
  EXPECT_EQ(list.all().front().status, 256);
  list.Add(Process(8));
  EXPECT_EQ(Lines(), 2u);
}

TEST_F(EndedListTest, TheFileStaysSmall) {
  constexpr pid_t kProcesses = 5 * EndedList::kMost;
  EndedList list;
  ASSERT_TRUE(list.KeepIn(path_, files_).ok());
  for (pid_t pid = 1; pid <= kProcesses; pid++) {
    list.Add(Process(pid));
    ASSERT_LE(list.all().size(), EndedList::kMost);
  }
  EXPECT_LE(Lines(), 2 * EndedList::kMost);
  EndedList next;
  ASSERT_TRUE(next.KeepIn(path_, files_).ok());
  ASSERT_THAT(next.all(), SizeIs(EndedList::kMost));
  EXPECT_EQ(next.all().front().summary.pid, kProcesses);
  EXPECT_EQ(Lines(), EndedList::kMost);
}

TEST_F(EndedListTest, WithoutAFile) {
  EndedList list;
  list.Add(Process(1));
  EXPECT_THAT(list.all(), SizeIs(1));
  EndedList nowhere;
  const absl::Status status = nowhere.KeepIn(folder_ / "no/such/folder", files_);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

}  // namespace
}  // namespace heaptap::recording
