// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "gtest/gtest.h"
#include "userspace/elf/file_descriptor.h"
#include "userspace/symbolize/confined.h"

namespace heaptap::symbolize {
namespace {

class ConfinedTest : public testing::Test {
 protected:
  elf::FileDescriptor file_{open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
  Limits limits_;
};

TEST_F(ConfinedTest, GivesWhatIsWritten) {
  const std::string long_text(1 << 20, 'x');  // more than a pipe holds
  Answer answer = RunConfined(limits_, file_.get(), [&](const Confined& confined) {
    confined.Write("begin");
    confined.Write(long_text);
    return confined.Seal();
  });
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.bytes, "begin" + long_text);
}

TEST_F(ConfinedTest, ReadsAndMapsWhatItHas) {
  Answer answer = RunConfined(limits_, file_.get(), [&](const Confined& confined) {
    if (!confined.Seal()) return false;
    char magic[4];
    if (pread(file_.get(), magic, sizeof(magic), 0) != sizeof(magic)) return false;
    confined.Write({magic, sizeof(magic)});
    void* mapped = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, file_.get(), 0);
    if (mapped == MAP_FAILED) return false;
    confined.Write({static_cast<const char*>(mapped), 4});
    return true;
  });
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.bytes, "\177ELF\177ELF");
}

TEST_F(ConfinedTest, CanDoNothingElse) {
  Answer answer = RunConfined(limits_, file_.get(), [&](const Confined& confined) {
    if (!confined.Seal()) return false;
    auto refused = [](long result) { return result < 0 && errno == EPERM; };
    return refused(open("/etc/passwd", O_RDONLY)) && refused(socket(AF_UNIX, SOCK_STREAM, 0)) && refused(fork()) &&
           refused(kill(getppid(), 0)) && refused(execl("/bin/true", "true", nullptr)) && refused(unlink("/nowhere"));
  });
  EXPECT_TRUE(answer.status.ok()) << answer.status;
}

TEST_F(ConfinedTest, HasNoOtherDescriptors) {
  elf::FileDescriptor other(open("/dev/null", O_RDONLY | O_CLOEXEC));
  Answer answer = RunConfined(limits_, file_.get(), [&](const Confined&) {
    for (int fd = 0; fd <= other.get(); fd++) {
      const bool is_open = fcntl(fd, F_GETFD) >= 0;
      // One more is the pipe.
      if (is_open && fd != file_.get() && write(fd, "", 0) != 0) return false;
    }
    return fcntl(other.get(), F_GETFD) < 0 && fcntl(2, F_GETFD) < 0;
  });
  EXPECT_TRUE(answer.status.ok()) << answer.status;
}

TEST_F(ConfinedTest, KeepsWhatWasWrittenBeforeACrash) {
  Answer answer = RunConfined(limits_, file_.get(), [](const Confined& confined) -> bool {
    confined.Write("before");
    abort();
  });
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(answer.bytes, "before");
}

TEST_F(ConfinedTest, SaysThatItGaveUp) {
  EXPECT_EQ(RunConfined(limits_, file_.get(), [](const Confined&) { return false; }).status.code(),
            absl::StatusCode::kAborted);
}

TEST_F(ConfinedTest, BoundsTime) {
  limits_.time = absl::Milliseconds(200);
  Answer answer = RunConfined(limits_, file_.get(), [](const Confined& confined) {
    confined.Write("before");
    for (;;) pause();
    return true;
  });
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(answer.bytes, "before");
}

TEST_F(ConfinedTest, BoundsTheTimeOfOneThatHasClosedItsPipe) {
  limits_.time = absl::Milliseconds(200);
  Answer answer = RunConfined(limits_, file_.get(), [](const Confined&) {
    close_range(0, ~0U, 0);
    for (;;) pause();
    return true;
  });
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ConfinedTest, BoundsMemory) {
  limits_.memory_bytes = 16 << 20;
  Answer answer = RunConfined(limits_, file_.get(), [](const Confined& confined) {
    auto can_take = [](size_t size) {
      return mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
    };
    confined.Write(can_take(1 << 20) ? "little" : "nothing");
    return !can_take(32 << 20);
  });
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.bytes, "little");
}

TEST_F(ConfinedTest, BoundsTheAnswer) {
  limits_.answer_bytes = 1000;
  Answer answer = RunConfined(limits_, file_.get(), [](const Confined& confined) {
    for (;;) confined.Write("0123456789");
    return true;
  });
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_LE(answer.bytes.size(), 1000u);
}

}  // namespace
}  // namespace heaptap::symbolize
