// SPDX-License-Identifier: Apache-2.0
//
// For tests: a server that does only what the test does for it.
#ifndef HEAPTAP_TESTS_UNIT_LISTENER_H_
#define HEAPTAP_TESTS_UNIT_LISTENER_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "gtest/gtest.h"
#include "userspace/base/file_descriptor.h"

namespace heaptap {

// A listening socket on the loopback address. Its queue has room for some connections.
class Listener {
 public:
  explicit Listener(int backlog) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(socket_.get(), backlog), 0);
    EXPECT_EQ(getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = std::to_string(ntohs(address.sin_port));
  }

  const std::string& port() const { return port_; }
  base::FileDescriptor Accept() const {
    return base::FileDescriptor(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }

 private:
  const base::FileDescriptor socket_;
  std::string port_;
};

}  // namespace heaptap

#endif  // HEAPTAP_TESTS_UNIT_LISTENER_H_
