// SPDX-License-Identifier: Apache-2.0
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/folder.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/daemon/notify.h"

namespace heaptap::daemon {
namespace {

using ::testing::StartsWith;

class NotifyTest : public ::testing::Test {
 protected:
  ~NotifyTest() override {
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) unsetenv(name);
  }

  // Begins to listen at "/path" or "@abstract", and puts it into the environment.
  void Listen(const std::string& name) {
    sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
    ASSERT_LT(name.size(), sizeof(address.sun_path));
    memcpy(address.sun_path, name.data(), name.size());
    const bool is_abstract = name[0] == '@';
    if (is_abstract) address.sun_path[0] = '\0';
    manager_.Reset(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const socklen_t length = offsetof(sockaddr_un, sun_path) + name.size() + (is_abstract ? 0 : 1);
    ASSERT_EQ(bind(manager_.get(), reinterpret_cast<const sockaddr*>(&address), length), 0) << strerror(errno);
    setenv("NOTIFY_SOCKET", name.c_str(), 1);
  }
  // A datagram is there as soon as it has been sent.
  std::string Take() {
    char text[4096];
    const ssize_t size = recv(manager_.get(), text, sizeof(text), 0);
    return size < 0 ? "nothing" : std::string(text, size);
  }

  TemporaryFolder folder_;
  base::FileDescriptor manager_;
};

TEST_F(NotifyTest, SaysWhatTheManagerUnderstands) {
  Listen(folder_ / "socket");
  const ServiceManager manager;
  manager.NotifyReady();
  EXPECT_EQ(Take(), "READY=1");
  manager.NotifyStatus("7 processes");
  EXPECT_EQ(Take(), "STATUS=7 processes");
  manager.NotifyAlive();
  EXPECT_EQ(Take(), "WATCHDOG=1");
  manager.NotifyStopping();
  EXPECT_EQ(Take(), "STOPPING=1");
  EXPECT_EQ(Take(), "nothing");
}

// By the monotonic clock: the manager compares it with its own requests.
TEST_F(NotifyTest, ReloadingSaysWhen) {
  Listen(folder_ / "socket");
  const ServiceManager manager;
  const auto now = [] {
    timespec time = {};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return absl::ToInt64Microseconds(absl::DurationFromTimespec(time));
  };
  const int64_t before = now();
  manager.NotifyReloading();
  const int64_t after = now();
  const std::string text = Take();
  absl::string_view number = text;
  ASSERT_TRUE(absl::ConsumePrefix(&number, "RELOADING=1\nMONOTONIC_USEC=")) << text;
  int64_t time = 0;
  ASSERT_TRUE(absl::SimpleAtoi(number, &time)) << text;
  EXPECT_GE(time, before);
  EXPECT_LE(time, after);
}

TEST_F(NotifyTest, AbstractSocket) {
  Listen(absl::StrCat("@", folder_.path()));
  ServiceManager().NotifyReady();
  EXPECT_EQ(Take(), "READY=1");
}

TEST_F(NotifyTest, AStatusIsOneLine) {
  Listen(folder_ / "socket");
  ServiceManager().NotifyStatus("a\nREADY=1");
  EXPECT_EQ(Take(), "STATUS=a?READY=1");
}

TEST_F(NotifyTest, ChildrenAreToldNothing) {
  Listen(folder_ / "socket");
  setenv("WATCHDOG_USEC", "1000000", 1);
  setenv("WATCHDOG_PID", absl::StrCat(getpid()).c_str(), 1);
  const ServiceManager manager;
  for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) EXPECT_EQ(getenv(name), nullptr) << name;
  manager.NotifyReady();
  EXPECT_EQ(Take(), "READY=1");
  ServiceManager().NotifyReady();
  EXPECT_EQ(Take(), "nothing") << "what was taken out of the environment is not there for a second one";
}

TEST_F(NotifyTest, NobodyWhoCouldBeReachedIsNoHarm) {
  ServiceManager().NotifyReady();
  const std::string long_name = absl::StrCat("/", std::string(sizeof(sockaddr_un::sun_path), 'x'));
  for (const std::string& name : {std::string(), std::string("@"), std::string("relative"), std::string("vsock:2:1"),
                                  folder_ / "nobody", long_name}) {
    setenv("NOTIFY_SOCKET", name.c_str(), 1);
    ServiceManager().NotifyReady();
    EXPECT_EQ(getenv("NOTIFY_SOCKET"), nullptr) << name;
  }
}

// Its queue is full after a few datagrams.
TEST_F(NotifyTest, AManagerThatDoesNotReadIsNotWaitedForForEver) {
  Listen(folder_ / "socket");
  const ServiceManager manager;
  base::FileDescriptor filler(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address = {};
  socklen_t length = sizeof(address);
  ASSERT_EQ(getsockname(manager_.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  int sent = 0;
  while (sendto(filler.get(), "x", 1, 0, reinterpret_cast<const sockaddr*>(&address), length) == 1) sent++;
  ASSERT_GT(sent, 0);
  manager.NotifyAlive();
  for (int i = 0; i < sent; i++) EXPECT_EQ(Take(), "x");
  EXPECT_EQ(Take(), "nothing");
  manager.NotifyAlive();
  EXPECT_EQ(Take(), "WATCHDOG=1") << "the next one arrives";
}

TEST_F(NotifyTest, Watchdog) {
  EXPECT_EQ(ServiceManager().watchdog_interval(), absl::InfiniteDuration());
  const auto interval = [](const char* microseconds, const std::string& pid) {
    setenv("WATCHDOG_USEC", microseconds, 1);
    if (!pid.empty()) setenv("WATCHDOG_PID", pid.c_str(), 1);
    return ServiceManager().watchdog_interval();
  };
  const std::string self = absl::StrCat(getpid());
  EXPECT_EQ(interval("60000000", self), absl::Seconds(30));
  EXPECT_EQ(interval("60000000", ""), absl::Seconds(30));
  EXPECT_EQ(interval("60000000", absl::StrCat(getppid())), absl::InfiniteDuration()) << "it is meant for another";
  EXPECT_EQ(interval("60000000", "me"), absl::InfiniteDuration());
  EXPECT_EQ(interval("0", self), absl::InfiniteDuration());
  EXPECT_EQ(interval("-1", self), absl::InfiniteDuration());
  EXPECT_EQ(interval("soon", self), absl::InfiniteDuration());
}

}  // namespace
}  // namespace heaptap::daemon
