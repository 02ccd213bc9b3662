// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/need_bpf.h"
#include "tests/unit/support/child.h"
#include "tests/unit/support/fake_clock.h"
#include "userspace/base/bounds.h"
#include "userspace/bpf/kernel_books.h"
#include "userspace/crews/looks.h"
#include "userspace/process/facts.h"
#include "userspace/process/maps.h"

namespace heaptap::worker {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

constexpr uid_t kUser = 1234;

class LooksTest : public ::testing::Test {
 protected:
  // Work that says when it was done.
  void Start(
      pid_t pid, const std::string& name, std::function<void()> work = [] {}) {
    looks_.Start(
        pid, [work = std::move(work)](Hands&, int) { work(); }, [this, name] { done_.push_back(name); });
  }
  bool WaitFor(size_t count) {
    return looks_.WaitUntil([&] { return done_.size() >= count; }, base::Now() + absl::Minutes(1));
  }
  static std::unique_ptr<Child> OfUser() {
    return std::make_unique<Child>([] { return setuid(kUser) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0; });
  }

  std::vector<std::string> done_;
  Looks looks_{-1, {}, {.patience = absl::Minutes(1)}};
};

// Of the real kernel, which tells which file is mapped.
TEST(Looks, AProcessAndItsFiles) {
  absl::StatusOr<std::unique_ptr<bpf::Books>> books = bpf::KernelBooks::Load({});
  NEED_BPF(books.status());
  Looks looks((*books)->program(bpf::Program::kIdentify), {}, {.patience = absl::Minutes(1)});
  std::optional<absl::StatusOr<LookedAt>> found;
  looks.Inspect(getpid(), [&](absl::StatusOr<LookedAt> looked) { found = std::move(looked); });
  ASSERT_TRUE(looks.WaitUntil([&] { return found.has_value(); }, base::Now() + absl::Minutes(1)));
  ASSERT_TRUE(found->ok()) << found->status();
  EXPECT_EQ((*found)->facts.executable, process::ReadFacts(getpid())->executable);
  EXPECT_EQ((*found)->mappings, *process::ReadExecutableMappings(getpid()));
  struct stat own;
  ASSERT_EQ(stat("/proc/self/exe", &own), 0);
  std::vector<uint64_t> inodes;
  for (const LookedAt::File& one : (*found)->files) {
    EXPECT_EQ(one.file.version.inode, (*found)->mappings[one.mapping].inode);
    inodes.push_back(one.file.version.inode);
  }
  EXPECT_THAT(inodes, Contains(own.st_ino).Times(1));
}

TEST(Looks, InTheCaller) {
  Looks looks(-1, {}, {.patience = absl::Minutes(1)}, /*waiting=*/0, Looks::Place::kCaller);
  EXPECT_TRUE(looks.HasRoom(getpid()));
  std::vector<std::string> order;
  looks.Start(
      getpid(), [&](Hands& hands, int) { order.push_back(hands.Facts(getpid())->command); },
      [&] { order.push_back("done"); });
  EXPECT_THAT(order, ElementsAre(process::ReadFacts(getpid())->command, "done"));
  EXPECT_TRUE(looks.IsIdle());
}

TEST(Looks, AProcessWithTooManyFiles) {
  absl::StatusOr<std::unique_ptr<bpf::Books>> books = bpf::KernelBooks::Load({});
  NEED_BPF(books.status());
  Looks looks((*books)->program(bpf::Program::kIdentify), {}, {.patience = absl::Minutes(1)});
  const Child child([] {
    for (size_t i = 0; i < Looks::kMaxFiles; i++) {
      const int file = memfd_create("code", MFD_CLOEXEC);
      if (ftruncate(file, 1) != 0 || mmap(nullptr, 1, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) == MAP_FAILED) {
        return false;
      }
      close(file);
    }
    return true;
  });
  ASSERT_TRUE(child.is_ready());
  const uint64_t before = base::CountsBeyondBounds().at("files_of_process");
  std::optional<absl::StatusOr<LookedAt>> found;
  looks.Inspect(child.pid(), [&](absl::StatusOr<LookedAt> looked) { found = std::move(looked); });
  ASSERT_TRUE(looks.WaitUntil([&] { return found.has_value(); }, base::Now() + absl::Minutes(1)));
  ASSERT_TRUE(found->ok()) << found->status();
  EXPECT_GT((*found)->mappings.size(), Looks::kMaxFiles) << "the program's own are mapped too";
  EXPECT_EQ((*found)->files.size(), Looks::kMaxFiles);
  EXPECT_EQ(base::CountsBeyondBounds().at("files_of_process"), before + 1);
}

TEST_F(LooksTest, AProcessThatIsGone) {
  std::optional<absl::StatusOr<LookedAt>> found;
  looks_.Inspect(1 << 30, [&](absl::StatusOr<LookedAt> looked) { found = std::move(looked); });
  ASSERT_TRUE(looks_.WaitUntil([&] { return found.has_value(); }, base::Now() + absl::Minutes(1)));
  EXPECT_TRUE(absl::IsNotFound(found->status())) << found->status();
}

TEST_F(LooksTest, OneUserDoesNotMakeAnotherWait) {
  if (getuid() != 0) GTEST_SKIP() << "needs processes of two users";
  const std::unique_ptr<Child> child = OfUser();
  absl::Notification end;
  Start(child->pid(), "stalled", [&] { end.WaitForNotification(); });
  Start(child->pid(), "after the stalled one");
  Start(getpid(), "of root");
  ASSERT_TRUE(WaitFor(1));
  EXPECT_THAT(done_, ElementsAre("of root"));
  EXPECT_FALSE(looks_.IsIdle());
  end.Notify();
  ASSERT_TRUE(WaitFor(3));
  EXPECT_TRUE(looks_.IsIdle());
}

TEST_F(LooksTest, AUserWhoHasUsedUpTheAccountWaits) {
  if (getuid() != 0) GTEST_SKIP() << "needs processes of two users";
  FakeClock clock;
  const std::unique_ptr<Child> child = OfUser();
  Start(child->pid(), "long", [&] { clock.Advance(2 * Looks::kBurst); });
  ASSERT_TRUE(WaitFor(1));
  Start(child->pid(), "later");
  Start(getpid(), "of root");
  ASSERT_TRUE(WaitFor(2));
  EXPECT_THAT(done_, ElementsAre("long", "of root"));
  clock.Advance(Looks::kBurst / Looks::kShare + absl::Milliseconds(1));
  ASSERT_TRUE(WaitFor(3));
}

TEST_F(LooksTest, OneUserHasABoundedNumberOfLooks) {
  if (getuid() != 0) GTEST_SKIP() << "needs processes of two users";
  const std::unique_ptr<Child> child = OfUser();
  absl::Notification end;
  Start(child->pid(), "stalled", [&] { end.WaitForNotification(); });
  size_t waiting = 0;
  for (; looks_.HasRoom(child->pid()); waiting++) Start(child->pid(), "waits");
  EXPECT_EQ(waiting, Looks::kMaxWaiting);
  EXPECT_TRUE(looks_.HasRoom(getpid()));
  end.Notify();
  ASSERT_TRUE(WaitFor(1 + waiting));
  EXPECT_TRUE(looks_.HasRoom(child->pid()));
}

}  // namespace
}  // namespace heaptap::worker
