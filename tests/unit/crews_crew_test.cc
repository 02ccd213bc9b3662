// SPDX-License-Identifier: Apache-2.0
//
// Crews, with readers that misbehave.
#include "userspace/crews/crew.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/child.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/folder.h"
#include "tests/unit/worker_jobs.h"
#include "userspace/base/clock.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/user_ids.h"
#include "userspace/crews/crews.h"
#include "userspace/process/maps.h"
#include "userspace/process/proc_files.h"

namespace heaptap::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CrewTest : public testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<Crew>> crew = Crew::Start(Urgency::kBackground);
    ASSERT_TRUE(crew.ok()) << crew.status();
    crew_ = *std::move(crew);
  }
  Answer Do(Job job, std::string question = "", Limits limits = {}) {
    return crew_->Do({.job = job, .file = {.fd = file_.get()}, .question = std::move(question)}, limits);
  }

  base::FileDescriptor file_{open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
  std::unique_ptr<Crew> crew_;
};

TEST_F(CrewTest, DoesOneJobAfterTheOther) {
  for (const char* question : {"first", "second"}) {
    const Answer answer = Do(kEcho, question);
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_THAT(answer.bytes, HasSubstr(absl::StrCat(question, "\177ELF")));
  }
  EXPECT_TRUE(crew_->is_usable());
}

TEST_F(CrewTest, LongQuestionsAndAnswers) {
  const std::string question(3 << 20, 'x');
  const Answer answer = Do(kEcho, question);
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.bytes.substr(0, question.size()), question);
}

TEST_F(CrewTest, HandsOpenWhatAProcessHasMapped) {
  const absl::StatusOr<std::vector<elf::Mapping>> mappings = process::ReadExecutableMappings(getpid());
  ASSERT_TRUE(mappings.ok());
  for (const elf::Mapping& mapping : *mappings) {
    if (mapping.inode == 0) continue;
    const Answer answer = crew_->Do({.job = kEcho, .file = {.pid = getpid(), .mapping = mapping}}, {});
    EXPECT_TRUE(answer.status.ok()) << mapping.path << ": " << answer.status;
    EXPECT_THAT(answer.bytes, HasSubstr("ELF"));
  }
  const Answer none =
      crew_->Do({.job = kEcho, .file = {.pid = getpid(), .mapping = {.start = 4096, .end = 8192, .inode = 1}}}, {});
  EXPECT_FALSE(none.status.ok());
  EXPECT_FALSE(none.IsFault());
  EXPECT_TRUE(crew_->is_usable());
}

TEST_F(CrewTest, FurtherFilesBelongToRootAndLieBelowTheRoot) {
  TemporaryFolder folder;
  WriteFile(folder / "good", "x");
  WriteFile(folder / "writable", "x");
  ASSERT_EQ(chmod((folder / "writable").c_str(), 0666), 0);
  const Answer answer = crew_->Do({.job = kEcho,
                                   .file = {.fd = file_.get()},
                                   .root = folder.path(),
                                   .paths = {"good", "writable", "nowhere", "../../etc/passwd", "/good"}},
                                  {});
  EXPECT_TRUE(absl::EndsWith(answer.bytes, getuid() == 0 ? "+---+" : "-----")) << answer.bytes;
}

TEST_F(CrewTest, AReaderCanDoNothingElse) {
  const Answer answer = Do(kBreakOut);
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_THAT(answer.bytes, IsEmpty());
}

TEST_F(CrewTest, OnlyAReaderInTheBackgroundHasTheLowestPriority) {
  EXPECT_TRUE(Do(kEcho).status.ok());
  EXPECT_EQ(getpriority(PRIO_PROCESS, crew_->reader()), 19);
  const absl::StatusOr<std::unique_ptr<Crew>> other = Crew::Start(Urgency::kForeground);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_TRUE((*other)->Do({.job = kEcho, .file = {.fd = file_.get()}}, {}).status.ok());
  EXPECT_EQ(getpriority(PRIO_PROCESS, (*other)->reader()), getpriority(PRIO_PROCESS, 0));
}

TEST_F(CrewTest, AReaderHasNoOtherDescriptors) {
  // 0, 1 and 2, the question, and the file.
  EXPECT_EQ(Do(kDescriptors).bytes, "0 1 2 3 4 ");
}

TEST_F(CrewTest, WhatWasWrittenBeforeADeathCounts) {
  const Answer answer = Do(kDie);
  EXPECT_TRUE(absl::IsAborted(answer.status)) << answer.status;
  EXPECT_EQ(answer.bytes, "part");
  EXPECT_FALSE(crew_->is_usable());
}

TEST_F(CrewTest, TimeIsBounded) {
  std::string bytes;
  // A busy machine may need more time for the start of the reader, which then writes a part.
  for (absl::Duration time = absl::Milliseconds(100); bytes.empty(); time *= 2) {
    SetUp();
    const Answer answer = Do(kStall, "", {.time = time});
    ASSERT_TRUE(absl::IsDeadlineExceeded(answer.status)) << answer.status;
    ASSERT_FALSE(crew_->is_usable());
    bytes = answer.bytes;
  }
  EXPECT_EQ(bytes, "part");
  const pid_t reader = crew_->reader();
  crew_ = nullptr;
  // The start of the next crew reaps it.
  while (kill(reader, 0) == 0) ASSERT_TRUE(Crew::Start(Urgency::kBackground).ok());
}

// For a thread that waits for hands and gets no processor: it learns of nothing before they have answered, and then an
// hour has passed.
class LateClock : public FakeClock {
 public:
  explicit LateClock(pid_t hands) : hands_(hands) {}
  absl::Duration WaitAtMost(base::Instant deadline) override {
    while (process::SchedulingOf(hands_)->is_ready) absl::SleepFor(absl::Milliseconds(1));
    Advance(std::exchange(late_, {}));
    return FakeClock::WaitAtMost(deadline);
  }

 private:
  const pid_t hands_;
  absl::Duration late_ = absl::Hours(1);
};

TEST_F(CrewTest, AnAnswerOfSeveralPartsIsReceivedLate) {
  const auto tid = static_cast<uint32_t>(gettid());
  const uint32_t tids[] = {tid, tid, tid};  // a part each
  const Request request = {.job = Job::kThreadNames,
                           .file = {.pid = getpid()},
                           .question = std::string(reinterpret_cast<const char*>(tids), sizeof(tids))};
  // They have started.
  const Answer expected = crew_->Do(request, {});
  ASSERT_TRUE(expected.status.ok()) << expected.status;
  LateClock clock(crew_->hands());
  const Answer answer = crew_->Do(request, {.time = absl::Milliseconds(30)});
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.bytes, expected.bytes);
}

TEST_F(CrewTest, MemoryIsBounded) {
  const Answer answer = Do(kBloat, "", {.memory_bytes = 64 << 20});
  EXPECT_TRUE(answer.IsFault()) << answer.status;
}

TEST_F(CrewTest, TheAnswerIsBounded) {
  const Answer answer = Do(kChatter, "", {.answer_bytes = 100000});
  EXPECT_TRUE(absl::IsResourceExhausted(answer.status)) << answer.status;
  EXPECT_LE(answer.bytes.size(), 100000u);
}

TEST_F(CrewTest, ForgedPackets) {
  const Answer answer = Do(kForge);
  EXPECT_TRUE(absl::IsAborted(answer.status)) << answer.status;
  EXPECT_EQ(answer.bytes, "forged");
}

TEST_F(CrewTest, KilledHandsAreTheFaultOfNoFile) {
  kill(crew_->hands(), SIGKILL);
  const Answer answer = Do(kEcho);
  EXPECT_TRUE(absl::IsUnavailable(answer.status) || absl::IsAborted(answer.status)) << answer.status;
  EXPECT_FALSE(crew_->is_usable());
}

TEST(Crews, OneUsersCrewServesNoOther) {
  Crews crews;
  const base::FileDescriptor file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  for (const uid_t user : {1000u, 1001u, base::kUnknownUser, 1000u}) {
    EXPECT_TRUE(crews.Do(user, {.job = kEcho, .file = {.fd = file.get()}}, {}).status.ok());
  }
  EXPECT_EQ(crews.started(), 3u);
  // A crew that dies is replaced, and does the job again: somebody may have killed it.
  EXPECT_TRUE(absl::IsAborted(crews.Do(1000, {.job = kDie, .file = {.fd = file.get()}}, {}).status));
  EXPECT_TRUE(crews.Do(1000, {.job = kEcho, .file = {.fd = file.get()}}, {}).status.ok());
  EXPECT_EQ(crews.started(), 5u);
  crews.EndIdle(base::Now() + 2 * Crews::kMaxIdleTime);
  EXPECT_TRUE(crews.Do(1000, {.job = kEcho, .file = {.fd = file.get()}}, {}).status.ok());
  EXPECT_EQ(crews.started(), 6u);
}

TEST(Crews, CancelledJobs) {
  Crews crews;
  const base::FileDescriptor file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  absl::Status status;
  std::thread job([&] { status = crews.Do(1000, {.job = kStall, .file = {.fd = file.get()}}, {}).status; });
  while (crews.started() == 0) sched_yield();
  crews.Cancel();
  job.join();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_TRUE(absl::IsCancelled(crews.Do(1000, {.job = kEcho, .file = {.fd = file.get()}}, {}).status));
}

}  // namespace
}  // namespace heaptap::worker
