// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/base/clock.h"
#include "userspace/process/maps.h"
#include "userspace/tables/version_checks.h"

namespace heaptap::recording {
namespace {

using ::testing::IsEmpty;

constexpr heaptap_file_key kFirst = {1, 0, 0};
constexpr heaptap_file_key kSecond = {2, 0, 0};

class VersionChecksTest : public ::testing::Test {
 protected:
  VersionChecksTest() {
    struct stat own = {};
    EXPECT_EQ(stat("/proc/self/exe", &own), 0);
    version_ = worker::ToVersion(own);
    const absl::StatusOr<std::vector<elf::Mapping>> mappings = process::ReadExecutableMappings(getpid());
    program_ = *std::ranges::find(*mappings, own.st_ino, &elf::Mapping::inode);
  }
  ~VersionChecksTest() override { LetLook(); }

  // Orders wait until LetLook. Root may have two under way.
  void Stall() {
    for (int i = 0; i < 2; i++) {
      orders_.Start(
          getpid(), [this](worker::Hands&, int) { may_look_.WaitForNotification(); }, [] {});
    }
  }
  void LetLook() {
    if (!may_look_.HasBeenNotified()) may_look_.Notify();
  }
  bool Await(size_t count) {
    return orders_.WaitUntil([&] { return done_.size() >= count; }, base::Now() + absl::Minutes(1));
  }

  worker::FileVersion version_;
  elf::Mapping program_;  // the file of this program
  absl::Notification may_look_;
  std::vector<VersionChecks::Check> done_;
  worker::Looks orders_{-1, {}, {.patience = absl::Minutes(1)}, 2};
  VersionChecks checks_{orders_, [this](const VersionChecks::Check& check) { done_.push_back(check); }};
};

TEST_F(VersionChecksTest, OfAMappedFile) {
  checks_.Begin(kFirst, getpid(), program_);
  EXPECT_THAT(done_, IsEmpty());
  EXPECT_TRUE(checks_.IsChecking(kFirst));
  EXPECT_FALSE(checks_.IsChecking(kSecond));
  ASSERT_TRUE(Await(1));
  EXPECT_FALSE(checks_.IsChecking(kFirst));
  EXPECT_EQ(done_[0].key.inode, kFirst.inode);
  ASSERT_TRUE(done_[0].version.ok()) << done_[0].version.status();
  EXPECT_EQ(*done_[0].version, version_);
  checks_.Begin(kFirst, 1 << 30, program_);
  ASSERT_TRUE(Await(2));
  EXPECT_FALSE(done_[1].version.ok()) << "there is no such process";
}

// Those that come while a look waits are looked at together after it: the third order would find no room.
TEST_F(VersionChecksTest, FilesOfOneUserShareALook) {
  Stall();
  for (const heaptap_file_key& key : {kFirst, kSecond, kFirst, kFirst}) checks_.Begin(key, getpid(), program_);
  EXPECT_TRUE(orders_.HasRoom(getpid()));
  LetLook();
  ASSERT_TRUE(Await(3));
  EXPECT_TRUE(orders_.IsIdle());
  EXPECT_EQ(done_.size(), 3u) << "the first one of kFirst, and then the last one and kSecond";
}

TEST_F(VersionChecksTest, WaitForRoom) {
  Stall();
  while (orders_.HasRoom(getpid()))
    orders_.Start(
        getpid(), [](worker::Hands&, int) {}, [] {});
  checks_.Begin(kFirst, getpid(), program_);
  LetLook();
  ASSERT_TRUE(orders_.WaitUntil([&] { return orders_.IsIdle(); }, base::Now() + absl::Minutes(1)));
  EXPECT_THAT(done_, IsEmpty());
  EXPECT_TRUE(checks_.IsChecking(kFirst));
  checks_.BeginWaiting();
  EXPECT_TRUE(Await(1));
}

}  // namespace
}  // namespace heaptap::recording
