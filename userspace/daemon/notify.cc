// SPDX-License-Identifier: Apache-2.0
#include "userspace/daemon/notify.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/messages.h"

namespace heaptap::daemon {
namespace {

// A manager that does not read must not block the recording for long.
constexpr timeval kPatience = {.tv_sec = 1, .tv_usec = 0};

std::string TakeVariable(const char* name) {
  const char* value = getenv(name);
  std::string text = value == nullptr ? "" : value;
  unsetenv(name);
  return text;
}

}  // namespace

ServiceManager::ServiceManager() : socket_(TakeVariable("NOTIFY_SOCKET")) {
  const std::string microseconds = TakeVariable("WATCHDOG_USEC");
  const std::string process = TakeVariable("WATCHDOG_PID");
  int64_t limit = 0;
  pid_t pid = 0;
  if (!absl::SimpleAtoi(microseconds, &limit) || limit <= 0) return;
  // Without a PID, the variable is meant for any process that has it.
  if (!process.empty() && (!absl::SimpleAtoi(process, &pid) || pid != getpid())) return;
  watchdog_interval_ = absl::Microseconds(limit) / 2;
}

void ServiceManager::NotifyReady() const { Notify("READY=1"); }

void ServiceManager::NotifyReloading() const {
  Notify(absl::StrCat("RELOADING=1\nMONOTONIC_USEC=", base::Now().nanoseconds() / 1000));
}

void ServiceManager::NotifyStopping() const { Notify("STOPPING=1"); }

void ServiceManager::NotifyStatus(absl::string_view status) const {
  Notify(absl::StrCat("STATUS=", base::AsciiOnly(status)));
}

void ServiceManager::NotifyAlive() const { Notify("WATCHDOG=1"); }

void ServiceManager::Notify(absl::string_view state) const {
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  if (socket_.size() < 2 || socket_.size() >= sizeof(address.sun_path)) return;
  if (socket_[0] != '/' && socket_[0] != '@') return;
  memcpy(address.sun_path, socket_.data(), socket_.size());
  // An abstract name begins with a zero byte and has no terminating one.
  if (socket_[0] == '@') address.sun_path[0] = '\0';
  const auto length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size() + (socket_[0] == '/' ? 1 : 0));
  const base::FileDescriptor fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return;
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof(kPatience));
  sendto(fd.get(), state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), length);
}

}  // namespace heaptap::daemon
