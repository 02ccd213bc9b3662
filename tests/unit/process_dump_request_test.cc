// SPDX-License-Identifier: Apache-2.0
//
// Tests the answers to honest and hostile dump requests of a forked child.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/need_bpf.h"
#include "userspace/process/dump_request.h"

namespace heaptap::process {
namespace {

using ::testing::HasSubstr;

// A process with a request at a known address, in memory that it shares with this process.
class DumpRequestTest : public ::testing::Test {
 protected:
  void SetUp() override {
    request_ = static_cast<heaptap_dump_request*>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(request_, MAP_FAILED);
    file_.Reset(memfd_create("dump", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    event_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    *request_ = {.sequence = 7,
                 .argument = 0,
                 .kind = HEAPTAP_DUMP_MANUAL,
                 .file_fd = file_.get(),
                 .event_fd = event_.get(),
                 .error = 99,
                 .leak_bytes = 0,
                 .leak_objects = 0,
                 .leak_contexts = 0,
                 .answered = 0};
  }
  void TearDown() override {
    End();
    munmap(request_, 4096);
  }

  // Starts the process; `behaviour` runs in it before it sleeps.
  void Begin(const std::function<void()>& behaviour = [] {}) {
    int ready[2];
    ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
    child_ = fork();
    if (child_ == 0) {
      if (write(ready[1], "x", 1) != 1) _exit(1);
      behaviour();
      for (;;) pause();
    }
    close(ready[1]);
    char word;
    ASSERT_EQ(read(ready[0], &word, 1), 1);
    close(ready[0]);
    absl::StatusOr<Handle> handle = Handle::Open(child_);
    ASSERT_TRUE(handle.ok()) << handle.status();
    process_ = std::make_unique<Handle>(*std::move(handle));
  }
  void End() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = 0;
  }

  absl::StatusOr<heaptap_dump_request> Read() { return ReadDumpRequest(*process_, Address()); }
  absl::Status Answer(const heaptap_dump_request& request, absl::string_view contents = "profile") {
    return AnswerWithDump(*process_, Address(), request, contents, {.bytes = 1, .objects = 2, .contexts = 3},
                          [this] { return is_current_; });
  }
  uint64_t Address() const { return reinterpret_cast<uint64_t>(request_); }
  bool Signalled() const {
    uint64_t count = 0;
    return read(event_.get(), &count, sizeof(count)) == sizeof(count) && count == 1;
  }
  std::string FileContents() const {
    std::string text(64, '\0');
    const ssize_t got = pread(file_.get(), text.data(), text.size(), 0);
    text.resize(got > 0 ? got : 0);
    return text;
  }

  heaptap_dump_request* request_ = nullptr;
  base::FileDescriptor file_;
  base::FileDescriptor event_;
  pid_t child_ = 0;
  bool is_current_ = true;
  std::unique_ptr<Handle> process_;
};

TEST_F(DumpRequestTest, AnswersWithTheDump) {
  Begin();
  absl::StatusOr<heaptap_dump_request> request = Read();
  ASSERT_TRUE(request.ok()) << request.status();
  const absl::Status status = Answer(*request);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(FileContents(), "profile");
  EXPECT_EQ(request_->error, 0);
  EXPECT_EQ(request_->leak_bytes, 1);
  EXPECT_EQ(request_->leak_objects, 2);
  EXPECT_EQ(request_->leak_contexts, 3);
  EXPECT_EQ(request_->answered, 7);
  EXPECT_EQ(request_->sequence, 7);
  EXPECT_TRUE(Signalled());
  EXPECT_TRUE(absl::IsAlreadyExists(Read().status())) << "it is answered";
}

// Its memory lives on in a process that shares it; its descriptors belong to the next program.
TEST_F(DumpRequestTest, AfterAnExecNothingIsWritten) {
  Begin();
  is_current_ = false;
  const absl::Status status = Answer(*request_);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(FileContents(), "");
  EXPECT_EQ(request_->answered, 0);
  EXPECT_FALSE(Signalled());
}

TEST_F(DumpRequestTest, NothingOfAnEarlierDumpStays) {
  ASSERT_EQ(write(file_.get(), "something much longer than the profile", 38), 38);
  Begin();
  EXPECT_TRUE(Answer(*request_).ok());
  EXPECT_EQ(FileContents(), "profile");
}

TEST_F(DumpRequestTest, AnswersWithAnError) {
  Begin();
  EXPECT_TRUE(AnswerWithError(*process_, Address(), *request_, ESRCH).ok());
  EXPECT_EQ(request_->error, ESRCH);
  EXPECT_EQ(request_->answered, 7);
  EXPECT_TRUE(Signalled());
  EXPECT_EQ(FileContents(), "");
}

TEST_F(DumpRequestTest, NonsenseIsNoRequest) {
  Begin();
  const heaptap_dump_request good = *request_;
  for (const auto& spoil : std::initializer_list<std::function<void()>>{
           [&] { request_->sequence = 0; }, [&] { request_->file_fd = -1; }, [&] { request_->event_fd = -1; }}) {
    *request_ = good;
    spoil();
    EXPECT_TRUE(absl::IsInvalidArgument(Read().status()));
  }
  *request_ = good;
  request_->answered = request_->sequence;
  EXPECT_TRUE(absl::IsAlreadyExists(Read().status()));
  *request_ = good;
  EXPECT_TRUE(absl::IsInvalidArgument(ReadDumpRequest(*process_, 8).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadDumpRequest(*process_, ~uint64_t{0} - 8).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadDumpRequest(*process_, Address() + 4096 - 8).status()));
}

TEST_F(DumpRequestTest, FilesThatAreNotGood) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const base::FileDescriptor pipe_in(ends[0]);
  const base::FileDescriptor pipe_out(ends[1]);
  const base::FileDescriptor read_only(open(absl::StrCat("/proc/self/fd/", file_.get()).c_str(), O_RDONLY | O_CLOEXEC));
  const base::FileDescriptor path_only(open("/etc/passwd", O_PATH | O_CLOEXEC));
  const base::FileDescriptor device(open("/dev/null", O_WRONLY | O_CLOEXEC));
  const base::FileDescriptor folder(open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Root may write to such files what the process that opened them may not, so no dump goes there.
  const base::FileDescriptor proc(open("/proc/self/coredump_filter", O_RDWR | O_CLOEXEC));
  Begin();
  for (const int fd : {pipe_out.get(), read_only.get(), path_only.get(), device.get(), folder.get(), proc.get(),
                       event_.get(), 1000000}) {
    request_->sequence++;
    request_->file_fd = fd;
    const absl::Status status = Answer(*request_);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << fd << " " << status;
    EXPECT_EQ(request_->error, EBADF) << fd;
    EXPECT_EQ(request_->answered, request_->sequence);
    EXPECT_TRUE(Signalled()) << "it waits for an answer";
  }
}

TEST_F(DumpRequestTest, ASealedFileIsAnError) {
  ASSERT_EQ(write(file_.get(), "old", 3), 3);
  ASSERT_EQ(fcntl(file_.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK), 0);
  Begin();
  const absl::Status status = Answer(*request_);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(request_->error, EPERM);
  EXPECT_TRUE(Signalled());
  EXPECT_EQ(FileContents(), "old");
}

TEST_F(DumpRequestTest, WhatIsNoEventfdIsNotWrittenTo) {
  const base::FileDescriptor fake(memfd_create("anon_inode:[eventfd]", MFD_CLOEXEC));
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const base::FileDescriptor pipe_in(ends[0]);
  const base::FileDescriptor pipe_out(ends[1]);
  Begin();
  for (const int fd : {fake.get(), pipe_out.get(), 1000000}) {
    request_->event_fd = fd;
    EXPECT_TRUE(absl::IsInvalidArgument(Answer(*request_))) << fd;
    // A request that cannot be answered is ignored; its descriptor may already refer to another file.
    EXPECT_EQ(FileContents(), "") << fd;
    EXPECT_EQ(request_->answered, 0);
  }
  struct pollfd pending = {pipe_in.get(), POLLIN, 0};
  EXPECT_EQ(poll(&pending, 1, 0), 0);
  EXPECT_EQ(lseek(fake.get(), 0, SEEK_END), 0);
}

// The process gave up, and its descriptor may now refer to a file of the program.
TEST_F(DumpRequestTest, ARequestThatWasWithdrawnTouchesNoFile) {
  ASSERT_EQ(write(file_.get(), "database", 8), 8);
  Begin();
  const heaptap_dump_request request = *request_;
  for (const uint64_t sequence : {uint64_t{0}, uint64_t{8}}) {
    request_->sequence = sequence;
    EXPECT_FALSE(Answer(request).ok());
    EXPECT_EQ(FileContents(), "database");
    EXPECT_EQ(request_->answered, 0);
    EXPECT_FALSE(Signalled());
  }
}

TEST_F(DumpRequestTest, AFullEventfdDoesNotBlock) {
  const base::FileDescriptor full(eventfd(0, EFD_CLOEXEC));
  const uint64_t most = ~uint64_t{0} - 1;
  ASSERT_EQ(write(full.get(), &most, sizeof(most)), 8);
  request_->event_fd = full.get();
  Begin();
  alarm(20);
  EXPECT_TRUE(Answer(*request_).ok());
  alarm(0);
  EXPECT_EQ(request_->answered, 7);
}

TEST_F(DumpRequestTest, ADeadProcessGetsNoAnswer) {
  Begin();
  End();
  EXPECT_FALSE(Read().ok());
  EXPECT_FALSE(Answer(*request_).ok());
  EXPECT_EQ(FileContents(), "");
  EXPECT_FALSE(Signalled());
}

}  // namespace
}  // namespace heaptap::process
