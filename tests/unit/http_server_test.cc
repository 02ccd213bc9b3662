// SPDX-License-Identifier: Apache-2.0
//
// Tests sockets, limits, and malicious clients.
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/http_client.h"
#include "tests/unit/support/fake_clock.h"
#include "userspace/api/endpoints.h"

namespace heaptap::api {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class HttpServerTest : public ServerTest {
 protected:
  HttpServerTest() { AddProcess(collector_, 42, 0, "program", 4096); }

  absl::Status TryStart(const http::ServerOptions& options) {
    return http::Server::Start(options, MakeHandler(collector_, crews_)).status();
  }
};

// Until the bytes end so, or the connection ends.
std::string ReceiveUntil(const base::FileDescriptor& fd, absl::string_view end) {
  std::string bytes;
  for (char byte; !absl::EndsWith(bytes, end) && recv(fd.get(), &byte, 1, 0) == 1;) bytes.push_back(byte);
  return bytes;
}

// --- sockets ---

TEST_F(HttpServerTest, SocketIsForEverybodyAndGoesWithTheServer) {
  Start();
  struct stat status;
  ASSERT_EQ(stat(options_.socket_path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode, S_IFSOCK | 0666u);
  server_.reset();
  EXPECT_NE(stat(options_.socket_path.c_str(), &status), 0);
}

TEST_F(HttpServerTest, WithoutTcp) {
  options_.listen = "";
  Start();
  EXPECT_EQ(server_->port(), 0);
  EXPECT_EQ(Get("/healthz").status, 200);
}

TEST_F(HttpServerTest, LivingServersSocketStays) {
  Start();
  const absl::Status status = TryStart({.socket_path = options_.socket_path});
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(options_.socket_path));
  EXPECT_EQ(Get("/healthz").status, 200);
}

TEST_F(HttpServerTest, DeadServersSocketIsReplaced) {
  const base::FileDescriptor dead(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  strncpy(address.sun_path, options_.socket_path.c_str(), sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  Start();
  EXPECT_EQ(Get("/healthz").status, 200);
}

TEST_F(HttpServerTest, OtherFilesStay) {
  std::filesystem::create_symlink("/etc/passwd", options_.socket_path);
  const absl::Status status = TryStart({.socket_path = options_.socket_path});
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_TRUE(std::filesystem::is_symlink(options_.socket_path));
}

TEST_F(HttpServerTest, AnothersSocketIsNotRemoved) {
  Start();
  std::filesystem::remove(options_.socket_path);
  absl::StatusOr<std::unique_ptr<http::Server>> next =
      http::Server::Start({.socket_path = options_.socket_path}, MakeHandler(collector_, crews_));
  ASSERT_TRUE(next.ok()) << next.status();
  server_.reset();
  EXPECT_EQ(Get("/healthz").status, 200);
}

// Between the look whether a socket is stale and the moment when the new one is listened on.
TEST_F(HttpServerTest, WhileAnotherServerStartsNoneDoes) {
  const base::FileDescriptor other(open(folder_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(flock(other.get(), LOCK_EX | LOCK_NB), 0);
  const absl::Status status = TryStart({.socket_path = options_.socket_path});
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  EXPECT_FALSE(std::filesystem::exists(options_.socket_path));
  ASSERT_EQ(flock(other.get(), LOCK_UN), 0);
  Start();
  // A server that runs holds no lock: the next one finds its socket.
  EXPECT_EQ(flock(other.get(), LOCK_EX | LOCK_NB), 0);
}

TEST_F(HttpServerTest, FolderThatOthersMayWriteTo) {
  std::filesystem::permissions(folder_.path(), std::filesystem::perms(01777));
  EXPECT_TRUE(absl::IsFailedPrecondition(TryStart({.socket_path = options_.socket_path})));
  std::filesystem::permissions(folder_.path(), std::filesystem::perms(0755));
  ASSERT_EQ(chown(folder_.path().c_str(), 65534, 65534), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(TryStart({.socket_path = options_.socket_path})));
  EXPECT_TRUE(absl::IsFailedPrecondition(TryStart({.socket_path = folder_ / "none/socket"})));
  EXPECT_FALSE(std::filesystem::exists(options_.socket_path));
}

TEST_F(HttpServerTest, WrongSocketPaths) {
  for (const std::string& path :
       {std::string(), folder_ / "", folder_ / ".", folder_ / "..", folder_ / std::string(100, 'x')}) {
    EXPECT_TRUE(absl::IsInvalidArgument(TryStart({.socket_path = path}))) << path;
  }
}

TEST_F(HttpServerTest, LongFolder) {
  std::string folder = folder_ / std::string(200, 'x');
  std::filesystem::create_directory(folder);
  EXPECT_TRUE(TryStart({.socket_path = folder + "/socket"}).ok());
}

TEST_F(HttpServerTest, AddressesThatAreNotLoopback) {
  for (const char* address :
       {"0.0.0.0:0", "[::]:0", "192.0.2.1:80", "localhost:80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x",
        "127.0.0.1:65536", "127.0.0.1:-1", ":80", "80", "::1:80", "[::1]", "127.1:80", "[127.0.0.1]:80",
        "[::ffff:127.0.0.1]:80", "127.0.0.1:80x", " 127.0.0.1:80"}) {
    const absl::Status status = TryStart({.socket_path = options_.socket_path, .listen = address});
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << address << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(address));
    EXPECT_FALSE(std::filesystem::exists(options_.socket_path)) << "nothing is left of it";
  }
  EXPECT_TRUE(TryStart({.socket_path = options_.socket_path, .listen = "127.3.2.1:0"}).ok());
}

TEST_F(HttpServerTest, PortInUse) {
  Start();
  const std::string address = absl::StrCat("127.0.0.1:", server_->port());
  const absl::Status status = TryStart({.socket_path = folder_ / "other", .listen = address});
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(address));
}

// --- browsers ---

TEST_F(HttpServerTest, Hosts) {
  Start();
  const std::pair<const char*, int> kHosts[] = {
      {"Host: localhost\r\n", 200},
      {"Host: LocalHost:1\r\n", 200},
      {"Host: 127.0.0.1:8078\r\n", 200},
      {"Host: 127.9.9.9\r\n", 200},
      {"Host: [::1]\r\n", 200},
      {"Host: [::1]:80\r\n", 200},
      {"Host: evil.example\r\n", 403},
      {"Host: evil.example:80\r\n", 403},
      {"Host: localhost.evil\r\n", 403},
      {"Host: 127.0.0.1.evil\r\n", 403},
      {"Host: 10.0.0.1\r\n", 403},
      {"Host: localhost:x\r\n", 403},
      {"Host: \r\n", 403},
      {"", 403},
      {"Host: [::1].evil\r\n", 403},
      {"Host: [::1]evil:1\r\n", 403},
      {"Host: localhost@evil\r\n", 403},
      {"Host: %6cocalhost\r\n", 403},
  };
  for (const auto& [header, status] : kHosts) {
    EXPECT_EQ(Exchange(ConnectTcp(), RequestText("GET", "/healthz", "", header)).status, status) << header;
    EXPECT_EQ(Exchange(Connect(), RequestText("GET", "/healthz", "", header)).status, 200) << header;
  }
}

TEST_F(HttpServerTest, PagesOfOtherSites) {
  Start();
  const std::pair<const char*, int> kHeaders[] = {
      {"Origin: http://evil.example\r\n", 403},
      {"Origin: http://localhost\r\n", 403},
      {"Origin: http://localhost:81\r\n", 403},
      {"Origin: https://localhost:8078\r\n", 403},
      {"Origin: http://localhost:8078\r\nSec-Fetch-Site: same-site\r\n", 403},
      {"Origin: http://localhost:8078\r\n", 200},
      {"Origin: null\r\n", 403},
      {"Sec-Fetch-Site: cross-site\r\n", 403},
      {"Sec-Fetch-Site: same-site\r\n", 403},
      {"Sec-Fetch-Site: none\r\n", 200},
      {"Sec-Fetch-Site: same-origin\r\n", 200},
  };
  for (const auto& [header, status] : kHeaders) {
    const std::string headers = absl::StrCat("Host: localhost:8078\r\n", header);
    EXPECT_EQ(Exchange(ConnectTcp(), RequestText("GET", "/mtev/heap_profile", "", headers)).status, status) << header;
    EXPECT_EQ(Exchange(ConnectTcp(), RequestText("POST", "/pid/42/dump", "", headers)).status, status) << header;
  }
  EXPECT_EQ(collector_.Deeds().size(), 3);
}

// --- requests ---

TEST_F(HttpServerTest, Methods) {
  Start();
  for (const char* method : {"PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "PRI", "FOO"}) {
    const Answered answer = Ask(method, "/healthz");
    EXPECT_EQ(answer.status, 405) << method;
    EXPECT_EQ(answer.Header("Allow"), "GET, HEAD, POST");
    EXPECT_EQ(answer.Header("X-Content-Type-Options"), "nosniff");
  }
  EXPECT_EQ(Post("/healthz").status, 405);
}

TEST_F(HttpServerTest, Head) {
  Start();
  const Answered answer = Ask("HEAD", "/pid/42/heap");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.Header("Content-Length"), absl::StrCat(Get("/pid/42/heap").body.size()));
  EXPECT_EQ(answer.body, "");
}

TEST_F(HttpServerTest, SeveralRequestsOnOneConnection) {
  options_.limits.requests_per_connection = 3;
  Start();
  const base::FileDescriptor client = Connect();
  const std::string request = "GET /healthz HTTP/1.1\r\n\r\n";
  SendAll(client, absl::StrCat(request, request, request, request));
  const std::string answers = ReceiveAll(client);
  size_t count = 0;
  for (size_t at = 0; (at = answers.find("HTTP/1.1 200 OK", at)) != std::string::npos; ++at) ++count;
  EXPECT_EQ(count, 3);
  EXPECT_THAT(answers.substr(answers.rfind("HTTP/1.1")), HasSubstr("Connection: close\r\n"));
}

TEST_F(HttpServerTest, RefusedRequestsEndTheConnection) {
  Start();
  const std::pair<const char*, int> kRequests[] = {
      {"nonsense\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501},
      {"POST / HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n", 413},
      {"POST /dump HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", 400},
  };
  for (const auto& [request, status] : kRequests) {
    const base::FileDescriptor client = Connect();
    SendAll(client, absl::StrCat(request, "GET /healthz HTTP/1.1\r\n\r\n"));
    const std::string answer = ReceiveAll(client);
    EXPECT_THAT(answer, StartsWith(absl::StrCat("HTTP/1.1 ", status, " "))) << request;
    EXPECT_EQ(answer.find("200 OK"), std::string::npos) << request;
  }
}

TEST_F(HttpServerTest, HeadersWithoutEffect) {
  Start();
  const std::string body = Get("/metrics").body;
  for (const char* header :
       {"Range: bytes=0-0,0-0\r\n", "Accept-Encoding: gzip, br\r\n", "Content-Type: multipart/form-data\r\n"}) {
    const Answered answer = Exchange(Connect(), RequestText("GET", "/metrics", "", header));
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, body);
  }
}

TEST_F(HttpServerTest, LargeFormBodies) {
  Start();
  // What jeprof sends: curl -d declares a form.
  std::string body = "0x1";
  while (body.size() < 1 << 20) body.append("+0x0000000000000001");
  const Answered answer = Exchange(Connect(), RequestText("POST", "/pid/42/pprof/symbol", body,
                                                          "Content-Type: application/x-www-form-urlencoded\r\n"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.body, EndsWith("0x1\t0x1\n"));
}

TEST_F(HttpServerTest, StrangeQueries) {
  Start();
  for (const char* target : {"/healthz?", "/healthz?=", "/healthz?&&&", "/healthz?a=b=c", "/healthz?%",
                             "/healthz?%zz=%u", "/healthz?%u0000", "/healthz#x?y"}) {
    EXPECT_EQ(Get(target).status, 200) << target;
  }
  EXPECT_EQ(Get("/healthz?a?b").status, 400);
}

// --- limits ---

// Servers that have all the time that a test gives them.
class HttpServerTimeTest : public HttpServerTest {
 protected:
  HttpServerTimeTest() {
    options_.limits.idle = options_.limits.header_time = options_.limits.body_time = options_.limits.answer_time =
        absl::Hours(1);
  }
  ~HttpServerTimeTest() override { server_.reset(); }

  static constexpr absl::Duration kLimit = absl::Seconds(10);
  FakeClock clock_;
};

TEST_F(HttpServerTimeTest, SlowHeader) {
  options_.limits.header_time = kLimit;
  Start();
  const base::FileDescriptor client = Connect();
  SendAll(client, "GET / HTTP/1.1\r\nX: ");
  // Each byte arrives in time, the complete header never does.
  for (absl::Duration left = kLimit; left > absl::ZeroDuration(); left -= kLimit / 10) {
    clock_.AwaitWaiter(left);
    SendAll(client, "x");
    clock_.Advance(kLimit / 10);
  }
  EXPECT_EQ(ParseAnswer(ReceiveAll(client)).status, 408);
}

TEST_F(HttpServerTimeTest, SlowBody) {
  options_.limits.body_time = kLimit;
  Start();
  const base::FileDescriptor client = Connect();
  SendAll(client, "POST /dump HTTP/1.1\r\nContent-Length: 3\r\n\r\nab");
  clock_.AwaitWaiter(kLimit);
  clock_.Advance(kLimit);
  EXPECT_EQ(ParseAnswer(ReceiveAll(client)).status, 408);
  EXPECT_THAT(collector_.Deeds(), IsEmpty());
}

TEST_F(HttpServerTimeTest, IdleClients) {
  options_.limits.idle = kLimit;
  Start();
  const base::FileDescriptor silent = Connect();
  clock_.AwaitWaiter(kLimit);
  clock_.Advance(kLimit);
  EXPECT_EQ(ReceiveAll(silent), "");
  const base::FileDescriptor client = Connect();
  SendAll(client, "GET /healthz HTTP/1.1\r\n\r\n");
  EXPECT_THAT(ReceiveUntil(client, "ok\n"), EndsWith("ok\n"));
  clock_.AwaitWaiter(kLimit);
  clock_.Advance(kLimit);
  EXPECT_EQ(ReceiveAll(client), "");
}

TEST_F(HttpServerTimeTest, ClientThatDoesNotRead) {
  options_.limits.answer_time = kLimit;
  // More than the sockets' buffers hold.
  collector_.snapshots[42].profile.warnings.assign(1 << 12, std::string(1 << 12, 'x'));
  Start();
  const base::FileDescriptor client = Connect();
  SendAll(client, "GET /pid/42/heap HTTP/1.1\r\n\r\n");
  clock_.AwaitWaiter(kLimit);
  clock_.Advance(kLimit);
  pollfd hung_up = {client.get(), 0, 0};
  EXPECT_EQ(poll(&hung_up, 1, -1), 1);
  EXPECT_LT(ReceiveAll(client).size(), 1 << 24);
  EXPECT_EQ(Get("/healthz").status, 200);
}

TEST_F(HttpServerTest, TooManyConnections) {
  options_.limits.connections = 8;
  options_.limits.connections_per_user = 2;
  options_.limits.connections_by_tcp = 2;
  options_.limits.idle = absl::Hours(1);
  Start();
  std::vector<base::FileDescriptor> idle;
  idle.push_back(Connect());
  idle.push_back(ConnectTcp());
  idle.push_back(ConnectTcp());
  // One user's silent clients do not affect others; that user's next client is refused at once.
  EXPECT_EQ(Exchange(ConnectTcp(), "").status, 503);
  EXPECT_EQ(Get("/healthz").status, 200);
  idle.push_back(Connect());
  // The thread of the last one may not have noticed its end.
  Answered answer;
  do {
    answer = Exchange(Connect(), "");
  } while (answer.status == 200);
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.body, "Service Unavailable\n");
  idle.clear();
  do {
    answer = Get("/healthz");
  } while (answer.status != 200);
}

TEST_F(HttpServerTest, ConnectionsByTcpTakeNoneOfTheSocket) {
  options_.limits.connections = 1;
  options_.limits.idle = absl::Hours(1);
  Start();
  std::vector<base::FileDescriptor> idle;
  for (size_t i = 0; i < options_.limits.connections_per_user; i++) {
    idle.push_back(ConnectTcp());
    // It has a place and a thread.
    SendAll(idle.back(), "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    ReceiveUntil(idle.back(), "ok\n");
  }
  EXPECT_EQ(Get("/healthz").status, 200);
  EXPECT_EQ(Exchange(ConnectTcp(), "").status, 503) << "the user has all that one user may have";
}

TEST_F(HttpServerTest, UsersOfTcpHaveAccounts) {
  std::optional<uid_t> payer;
  absl::StatusOr<std::unique_ptr<http::Server>> server =
      http::Server::Start(options_, [&](const http::Request&, const http::Access& access, const http::Sleep&) {
        payer = access.payer();
        return http::Response{.body = "done"};
      });
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  constexpr uid_t kUser = 4321;
  // The file system's user id is the one of new sockets.
  const auto before = static_cast<uid_t>(setfsuid(kUser));
  const base::FileDescriptor client = ConnectTcp();
  setfsuid(before);
  // The kernel took this away with the other user id, and later tests look into their children.
  ASSERT_EQ(prctl(PR_SET_DUMPABLE, 1), 0);
  EXPECT_EQ(Exchange(client, RequestText("GET", "/")).status, 200);
  EXPECT_EQ(payer, kUser);
}

TEST_F(HttpServerTest, ClientThatLeavesWhileItsAnswerIsMade) {
  options_.limits.connections_per_user = 1;
  Start();
  SendAll(Connect(), RequestText("GET", "/debug/pprof/heap?seconds=3600"));
  // Its thread is free again.
  while (Get("/healthz").status != 200) std::this_thread::yield();
}

TEST_F(HttpServerTest, StopEndsIdleConnections) {
  options_.limits.idle = absl::Hours(1);
  options_.limits.header_time = absl::Hours(1);
  Start();
  const base::FileDescriptor idle = Connect();
  SendAll(idle, "GET /healthz HTTP/1.1\r\n\r\n");
  EXPECT_THAT(ReceiveUntil(idle, "ok\n"), EndsWith("ok\n"));
  const base::FileDescriptor half = Connect();
  SendAll(half, "GET / HT");
  server_.reset();
  EXPECT_EQ(ReceiveAll(idle), "");
}

}  // namespace
}  // namespace heaptap::api
