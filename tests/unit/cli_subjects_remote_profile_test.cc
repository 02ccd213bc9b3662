// SPDX-License-Identifier: Apache-2.0
//
// Tests servers that are slow or silent; tests/e2e/tools/test_urls.py has the others.
#include <sys/socket.h>

#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/listener.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/cli/subjects/remote_profile.h"

namespace heaptap::cli {
namespace {

using ::testing::HasSubstr;

std::string UrlOf(const Listener& listener) { return absl::StrCat("http://127.0.0.1:", listener.port(), "/heap"); }

TEST(RemoteProfile, SilentServer) {
  const Listener listener(1);
  const absl::Status status = FetchRemote(UrlOf(listener), {.silence = absl::Milliseconds(50)}).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr(UrlOf(listener)));
}

// The kernel accepts as many connections as the queue holds, and one more.
TEST(RemoteProfile, ServerThatDoesNotAccept) {
  const Listener listener(0);
  for (int i = 0; i < 3; i++) {
    const absl::Status status =
        FetchRemote(UrlOf(listener), {.connect = absl::Milliseconds(50), .silence = absl::Milliseconds(1)}).status();
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_TRUE(i < 2 || absl::StrContains(status.message(), "does not accept")) << status;
  }
}

// A slow answer is not a silent one.
TEST(RemoteProfile, SlowServer) {
  const Listener listener(1);
  std::thread server([&] {
    const base::FileDescriptor client = listener.Accept();
    for (const char letter : std::string("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nheap")) {
      absl::SleepFor(absl::Milliseconds(10));
      EXPECT_EQ(send(client.get(), &letter, 1, MSG_NOSIGNAL), 1);
    }
  });
  // Less than the whole answer takes, and many times as much as a byte takes.
  const absl::StatusOr<std::string> body = FetchRemote(UrlOf(listener), {.silence = absl::Milliseconds(300)});
  server.join();
  ASSERT_TRUE(body.ok()) << body.status();
  EXPECT_EQ(*body, "heap");
}

TEST(RemoteProfile, FileNames) {
  EXPECT_EQ(FileNameOfUrl("http://host:80/pid/7/heap?debug=0"), "host_80_pid_7_heap");
  EXPECT_EQ(FileNameOfUrl("http://[::1]/../a%2fb/"), "___1__.._a_2fb");
  EXPECT_EQ(FileNameOfUrl("http://" + std::string(1000, 'x')).size(), 100);
}

}  // namespace
}  // namespace heaptap::cli
