// SPDX-License-Identifier: Apache-2.0
//
// Answers to dump requests that this process makes to itself.
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <utility>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "heaptap/contract.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/dumps/answers.h"
#include "userspace/worker/answer_job.h"

namespace heaptap::recording {
namespace {

constexpr uint64_t kProcess = 1;
constexpr uint64_t kOther = 2;
constexpr uid_t kUser = 1000;

// A request of this process, which the hands read and answer in its memory.
class Request {
 public:
  Request() : file_(memfd_create("dump", MFD_CLOEXEC)), event_(eventfd(0, EFD_CLOEXEC)) {
    request_.sequence = 7;
    request_.file_fd = file_.get();
    request_.event_fd = event_.get();
  }
  uint64_t address() const { return reinterpret_cast<uint64_t>(&request_); }
  bool is_answered() const { return const_cast<const volatile uint64_t&>(request_.answered) == 7; }
  int error() const { return request_.error; }
  std::string contents() const {
    char bytes[64];
    const ssize_t got = pread(file_.get(), bytes, sizeof(bytes), 0);
    return std::string(bytes, got > 0 ? got : 0);
  }

 private:
  base::FileDescriptor file_;
  base::FileDescriptor event_;
  heaptap_dump_request request_ = {};
};

void Start(Answers& answers, uint64_t process_id, std::string answer, std::function<void(bool)> done) {
  answers.Start(
      answers.Take(process_id, kUser), getpid(), std::move(answer), [] { return true; }, std::move(done));
}

TEST(Answers, TheProcessGetsItsDump) {
  worker::Errands errands(worker::Urgency::kForeground);
  Answers answers(errands);
  const Request request;
  bool is_ok = false;
  Start(answers, kProcess, worker::AnswerQuestion({.address = request.address(), .sequence = 7}, "the dump"),
        [&](bool ok) { is_ok = ok; });
  EXPECT_TRUE(answers.IsRunning(kProcess));
  EXPECT_EQ(answers.WaitFor(kProcess), 0);
  EXPECT_FALSE(answers.IsRunning(kProcess));
  EXPECT_TRUE(is_ok);
  EXPECT_TRUE(request.is_answered());
  EXPECT_EQ(request.error(), 0);
  EXPECT_EQ(request.contents(), "the dump");
}

TEST(Answers, AnErrorInsteadOfADump) {
  worker::Errands errands(worker::Urgency::kForeground);
  Answers answers(errands);
  const Request request;
  Start(answers, kProcess, worker::AnswerQuestion({.address = request.address(), .error = ESRCH}, ""), [](bool) {});
  EXPECT_EQ(answers.WaitFor(kProcess), 0);
  EXPECT_TRUE(request.is_answered());
  EXPECT_EQ(request.error(), ESRCH);
}

TEST(Answers, AnotherRequestIsNotAnswered) {
  worker::Errands errands(worker::Urgency::kForeground);
  Answers answers(errands);
  const Request request;
  Start(answers, kProcess, worker::AnswerQuestion({.address = request.address(), .sequence = 6}, "the dump"),
        [](bool) {});
  EXPECT_EQ(answers.WaitFor(kProcess), 0);
  EXPECT_FALSE(request.is_answered());
  EXPECT_EQ(request.contents(), "");
}

TEST(Answers, FailuresAreCountedOnce) {
  worker::Errands errands(worker::Urgency::kForeground);
  Answers answers(errands);
  const worker::DumpAnswer nowhere = {.address = 8};
  const auto start = [&](uint64_t process_id) {
    bool is_ok = true;
    Start(answers, process_id, worker::AnswerQuestion(nowhere, ""), [&](bool ok) { is_ok = ok; });
    answers.WaitForAll();
    EXPECT_FALSE(is_ok);
  };
  testing::internal::CaptureStderr();
  start(kProcess);
  EXPECT_NE(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(answers.WaitFor(kOther), 0);
  EXPECT_EQ(answers.WaitFor(kProcess), 1);
  EXPECT_EQ(answers.WaitFor(kProcess), 0);
  testing::internal::CaptureStderr();
  start(kProcess);
  answers.Drop(kProcess);
  EXPECT_EQ(answers.WaitFor(kProcess), 0);
  testing::internal::GetCapturedStderr();
  testing::internal::CaptureStderr();
  start(Answers::kUnrecorded);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "nobody's concern";
  EXPECT_EQ(answers.WaitFor(Answers::kUnrecorded), 0);
}

// Answers that run until the end of the test.
class BusyAnswers : public ::testing::Test {
 protected:
  ~BusyAnswers() override { end_.Notify(); }
  void Start(uint64_t process_id, std::optional<uid_t> user) {
    ASSERT_TRUE(answers_.HasRoom(process_id, user));
    const auto wait = [this] {
      end_.WaitForNotification();
      return false;
    };
    answers_.Start(answers_.Take(process_id, user), getpid(), worker::AnswerQuestion({}, ""), wait, [](bool) {});
  }

  absl::Notification end_;
  worker::Errands errands_{worker::Urgency::kForeground};
  Answers answers_{errands_};
};

TEST_F(BusyAnswers, AreBoundedInNumber) {
  for (size_t i = 0; i < Answers::kMaxRunning; i++) Start(kProcess + i, kUser + i);
  EXPECT_FALSE(answers_.HasRoom(kProcess + Answers::kMaxRunning, 1));
}

TEST_F(BusyAnswers, OneProcessLeavesRoomForOthers) {
  for (size_t i = 0; i < Answers::kMaxRunningOfOne; i++) Start(kProcess, kUser);
  EXPECT_FALSE(answers_.HasRoom(kProcess, kUser));
  for (size_t i = 0; i < Answers::kMaxRunningOfUnrecorded; i++) Start(Answers::kUnrecorded, std::nullopt);
  EXPECT_FALSE(answers_.HasRoom(Answers::kUnrecorded, std::nullopt));
  EXPECT_TRUE(answers_.HasRoom(kOther, kUser + 1));
  // A process whose owner is unknown has room, however many requests of processes that are not recorded run.
  EXPECT_TRUE(answers_.HasRoom(kProcess + 10, std::nullopt));
}

TEST_F(BusyAnswers, OneUserLeavesRoomForOthers) {
  for (size_t i = 0; i < Answers::kMaxRunningOfUser; i++) Start(kProcess + i, kUser);
  EXPECT_FALSE(answers_.HasRoom(kProcess + 20, kUser));
  EXPECT_TRUE(answers_.HasRoom(kProcess + 20, kUser + 1));
  for (size_t i = 0; i <= Answers::kMaxRunningOfUser; i++) Start(kProcess + 100 + i, 0);
}

}  // namespace
}  // namespace heaptap::recording
