// SPDX-License-Identifier: Apache-2.0
//
// For tests of the commands: a server on a Unix socket that answers each request with bytes chosen by the test, HTTP or
// not.
#ifndef HEAPTAP_TESTS_UNIT_FAKE_DAEMON_H_
#define HEAPTAP_TESTS_UNIT_FAKE_DAEMON_H_

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "userspace/base/file_descriptor.h"

namespace heaptap::cli {

inline std::string Http(int status, absl::string_view body) {
  return absl::StrCat("HTTP/1.1 ", status, " x\r\nContent-Type: x\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
}

// Answers one request after the other, until it is destroyed.
class FakeDaemon {
 public:
  // `path`: the socket.
  explicit FakeDaemon(const std::string& path) : socket_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, path.data(), path.size());
    int ends[2];
    if (bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
        listen(socket_.get(), 10) != 0 || pipe(ends) != 0) {
      abort();
    }
    end_.Reset(ends[0]);
    tell_end_.Reset(ends[1]);
    thread_ = std::thread([this] { Run(); });
  }
  ~FakeDaemon() {
    tell_end_.Reset();
    thread_.join();
  }
  FakeDaemon(const FakeDaemon&) = delete;
  FakeDaemon& operator=(const FakeDaemon&) = delete;

  // `request`: "GET /path". If there are several answers, each is sent once, and the last one from then on.
  void Answer(const std::string& request, std::vector<std::string> bytes) {
    const std::lock_guard lock(mutex_);
    answers_[request] = std::move(bytes);
  }
  // Sent again and again after the answer, until the client disconnects.
  void AppendForEver(std::string bytes) {
    const std::lock_guard lock(mutex_);
    for_ever_ = std::move(bytes);
  }
  // Keeps the connection open after the answer, until the client closes it.
  void StayOpen() {
    const std::lock_guard lock(mutex_);
    stays_open_ = true;
  }
  std::vector<std::string> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  // Waits until `fd` is readable; false at the end of the test.
  bool Wait(int fd) const {
    pollfd polled[] = {{fd, POLLIN, 0}, {end_.get(), POLLIN, 0}};
    while (poll(polled, 2, -1) < 0) {
    }
    return polled[1].revents == 0;
  }

  void Run() {
    while (Wait(socket_.get())) {
      const base::FileDescriptor client(accept(socket_.get(), nullptr, nullptr));
      std::string head;
      char byte = 0;
      while (head.find("\r\n\r\n") == std::string::npos && read(client.get(), &byte, 1) == 1) head.push_back(byte);
      const std::string request = head.substr(0, head.find(" HTTP/1.1"));
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
      const auto known = answers_.find(request);
      std::string bytes = Http(404, "{\"error\": \"no such resource\"}");
      if (known != answers_.end()) {
        bytes = known->second.front();
        if (known->second.size() > 1) known->second.erase(known->second.begin());
      }
      const auto put = [&](const std::string& text) {
        return send(client.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
      };
      if (put(bytes) && !for_ever_.empty()) {
        while (put(for_ever_)) {
        }
      }
      // Until the client disconnects.
      if (stays_open_ && Wait(client.get())) continue;
    }
  }

  base::FileDescriptor socket_;
  base::FileDescriptor end_;
  base::FileDescriptor tell_end_;
  std::mutex mutex_;
  std::map<std::string, std::vector<std::string>> answers_;
  std::string for_ever_;
  bool stays_open_ = false;
  std::vector<std::string> requests_;
  std::thread thread_;
};

}  // namespace heaptap::cli

#endif  // HEAPTAP_TESTS_UNIT_FAKE_DAEMON_H_
