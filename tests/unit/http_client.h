// SPDX-License-Identifier: Apache-2.0
//
// For tests: an HTTP client that sends any bytes, and a server to send them to.
#ifndef HEAPTAP_TESTS_UNIT_HTTP_CLIENT_H_
#define HEAPTAP_TESTS_UNIT_HTTP_CLIENT_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/unit/fake_collector.h"
#include "tests/unit/support/folder.h"
#include "userspace/api/endpoints.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/http/server.h"

namespace heaptap::api {

// The parts of an answer; status 0: there was none.
struct Answered {
  int status = 0;
  std::string headers = {};
  std::string body = {};

  // The value of a header; "" if it is not there.
  std::string Header(const std::string& name) const {
    const size_t found = headers.find(absl::StrCat("\r\n", name, ": "));
    if (found == std::string::npos) return "";
    const size_t begin = found + name.size() + 4;
    return headers.substr(begin, headers.find("\r\n", begin) - begin);
  }
};

inline Answered ParseAnswer(const std::string& text) {
  Answered answer;
  const size_t end = text.find("\r\n\r\n");
  if (end == std::string::npos || !absl::StartsWith(text, "HTTP/1.1 ")) return answer;
  answer.status = atoi(text.c_str() + 9);
  answer.headers = text.substr(0, end + 2);
  answer.body = text.substr(end + 4);
  return answer;
}

inline base::FileDescriptor ConnectUnix(const std::string& path) {
  base::FileDescriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return {};
  return fd;
}

inline base::FileDescriptor ConnectLoopback(int port) {
  base::FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return {};
  return fd;
}

// Sends as much of it as the other side accepts.
inline void SendAll(const base::FileDescriptor& fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (put <= 0) return;
    bytes.remove_prefix(put);
  }
}

// Returns all that is received until the other side closes.
inline std::string ReceiveAll(const base::FileDescriptor& fd) {
  std::string all;
  char part[1 << 16];
  for (ssize_t got; (got = recv(fd.get(), part, sizeof(part), 0)) > 0;) all.append(part, got);
  return all;
}

inline std::string RequestText(const std::string& method, const std::string& target, const std::string& body = "",
                               const std::string& headers = "Host: localhost\r\n") {
  return absl::StrCat(method, " ", target, " HTTP/1.1\r\n", headers, "Connection: close\r\n",
                      body.empty() ? "" : absl::StrCat("Content-Length: ", body.size(), "\r\n"), "\r\n", body);
}

inline Answered Exchange(const base::FileDescriptor& fd, const std::string& request) {
  EXPECT_TRUE(fd.valid());
  SendAll(fd, request);
  return ParseAnswer(ReceiveAll(fd));
}

// A server of a fake collector in a folder that only this user can write to.
class ServerTest : public ::testing::Test {
 protected:
  ServerTest() {
    // Other users must be able to connect.
    std::filesystem::permissions(folder_.path(), std::filesystem::perms(0755));
    options_ = {.socket_path = folder_ / "socket", .listen = "127.0.0.1:0"};
  }

  void Start() {
    absl::StatusOr<std::unique_ptr<http::Server>> server =
        http::Server::Start(options_, MakeHandler(collector_, crews_));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
  }

  base::FileDescriptor Connect() const { return ConnectUnix(options_.socket_path); }
  base::FileDescriptor ConnectTcp() const { return ConnectLoopback(server_->port()); }

  Answered Ask(const std::string& method, const std::string& target, const std::string& body = "") const {
    return Exchange(Connect(), RequestText(method, target, body));
  }
  Answered Get(const std::string& target) const { return Ask("GET", target); }
  Answered Post(const std::string& target, const std::string& body = "") const { return Ask("POST", target, body); }

  TemporaryFolder folder_;
  http::ServerOptions options_;
  FakeCollector collector_;
  worker::Crews crews_;
  std::unique_ptr<http::Server> server_;
};

}  // namespace heaptap::api

#endif  // HEAPTAP_TESTS_UNIT_HTTP_CLIENT_H_
