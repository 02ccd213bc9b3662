// SPDX-License-Identifier: Apache-2.0
#include "userspace/http/server.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/user_ids.h"
#include "userspace/http/channel.h"
#include "userspace/http/wire.h"

namespace heaptap::http {
namespace {

// After poll(2) or accept(2) failed for want of descriptors or memory.
constexpr absl::Duration kPause = absl::Milliseconds(100);

// Without waiting: it does not matter if the client misses the answer.
void Refuse(int fd) {
  const std::string answer = Refusal(503);
  send(fd, answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options, Handler handler) {
  base::FileDescriptor loopback;
  if (!options.listen.empty()) {
    absl::StatusOr<base::FileDescriptor> listener = ListenOnLoopback(options.listen);
    if (!listener.ok()) return listener.status();
    loopback = std::move(*listener);
  }
  absl::StatusOr<UnixListener> unix_listener = UnixListener::Listen(options.socket_path);
  if (!unix_listener.ok()) return unix_listener.status();
  base::FileDescriptor wakeup(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wakeup.valid()) return absl::ErrnoToStatus(errno, "eventfd");
  std::unique_ptr<Server> server(
      new Server(options, std::move(handler), std::move(*unix_listener), std::move(loopback), std::move(wakeup)));
  const absl::Status started = server->StartThreads();
  if (!started.ok()) return started;
  return server;
}

Server::Server(const ServerOptions& options, Handler handler, UnixListener unix_listener, base::FileDescriptor loopback,
               base::FileDescriptor wakeup)
    : limits_(options.limits),
      service_(std::move(handler), options.limits, options.group),
      unix_listener_(std::move(unix_listener)),
      loopback_(std::move(loopback)),
      wakeup_(std::move(wakeup)) {}

absl::Status Server::StartThreads() {
  threads_.reserve(limits_.connections + 1);
  try {
    threads_.emplace_back([this] { Accept(); });
    while (threads_.size() <= limits_.connections) threads_.emplace_back([this] { Work(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start ", limits_.connections, " threads for HTTP clients: ", error.what()));
  }
  return absl::OkStatus();
}

Server::~Server() {
  {
    absl::MutexLock lock(&mutex_);
    is_stopping_ = true;
    for (int fd : open_) shutdown(fd, SHUT_RDWR);
  }
  eventfd_write(wakeup_.get(), 1);
  for (std::thread& thread : threads_) thread.join();
}

void Server::Accept() {
  pollfd sources[] = {{wakeup_.get(), POLLIN, 0}, {unix_listener_.fd(), POLLIN, 0}, {loopback_.get(), POLLIN, 0}};
  while (true) {
    if (poll(sources, std::size(sources), -1) < 0) {
      if (errno != EINTR && Pause()) return;
      continue;
    }
    if (sources[0].revents != 0) return;
    if (sources[1].revents != 0) AcceptFrom(unix_listener_.fd(), true);
    if (sources[2].revents != 0) AcceptFrom(loopback_.get(), false);
  }
}

bool Server::Pause() {
  pollfd stop = {wakeup_.get(), POLLIN, 0};
  return base::PollUntil(absl::MakeSpan(&stop, 1), base::Now() + kPause) > 0;
}

void Server::AcceptFrom(int listener, bool is_unix) {
  base::FileDescriptor socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket.valid()) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) Pause();
    return;
  }
  std::optional<Peer> peer;
  if (is_unix) {
    absl::StatusOr<Peer> found = PeerOf(socket.get());
    // A client without a known user has no rights here.
    if (!found.ok()) return;
    peer = std::move(*found);
  }
  const User user = peer.has_value() ? User(ids_.OwnerOf(peer->uid)) : std::nullopt;
  if (!Admit(socket.get(), user)) return Refuse(socket.get());
  absl::MutexLock lock(&mutex_);
  waiting_.push_back({std::move(socket), std::move(peer)});
}

bool Server::Admit(int fd, const User& user) {
  absl::MutexLock lock(&mutex_);
  if (is_stopping_) return false;
  // Keeps some connections for root, however many users connect.
  const size_t kept =
      user == base::kRoot || limits_.connections <= limits_.connections_per_user ? 0 : limits_.connections_per_user;
  if (open_.size() + kept >= limits_.connections) return false;
  size_t& count = by_user_[user];
  if (count >= (user.has_value() ? limits_.connections_per_user : limits_.connections_by_tcp)) return false;
  ++count;
  open_.insert(fd);
  return true;
}

void Server::Work() {
  while (true) {
    Connection connection;
    {
      absl::MutexLock lock(&mutex_);
      const auto has_work = [this]()
                                ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_stopping_ || !waiting_.empty(); };
      mutex_.Await(absl::Condition(&has_work));
      if (is_stopping_) return;
      connection = std::move(waiting_.back());
      waiting_.pop_back();
    }
    SocketChannel channel(connection.socket.get());
    service_.Serve(channel, connection.peer);
    absl::MutexLock lock(&mutex_);
    // Before the descriptor number is reused.
    open_.erase(connection.socket.get());
    const auto count =
        by_user_.find(connection.peer.has_value() ? User(ids_.OwnerOf(connection.peer->uid)) : std::nullopt);
    if (--count->second == 0) by_user_.erase(count);
  }
}

}  // namespace heaptap::http
