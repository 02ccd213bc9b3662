// SPDX-License-Identifier: Apache-2.0
#include "userspace/http/server.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/bounds.h"
#include "userspace/base/clock.h"
#include "userspace/base/mutex.h"
#include "userspace/http/channel.h"
#include "userspace/http/loopback_user.h"
#include "userspace/http/wire.h"

namespace heaptap::http {
namespace {

// The pause after poll(2) or accept(2) failed for want of descriptors or memory.
constexpr absl::Duration kPause = absl::Milliseconds(100);

// Does not wait: it does not matter if the client misses the answer.
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
      wakeup_(std::move(wakeup)),
      unix_places_(
          {.all = limits_.connections,
           .of_user = limits_.connections_per_user,
           .kept_for_root = limits_.connections > limits_.connections_per_user ? limits_.connections_per_user : 0}),
      tcp_places_({.all = limits_.connections_by_tcp, .of_user = limits_.connections_per_user}) {}

absl::Status Server::StartThreads() {
  // One thread for each place.
  const size_t workers = limits_.connections + (loopback_.valid() ? limits_.connections_by_tcp : 0);
  threads_.reserve(workers + 1);
  try {
    threads_.emplace_back([this] { Accept(); });
    while (threads_.size() <= workers) threads_.emplace_back([this] { Work(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start ", workers, " threads for HTTP clients: ", error.what()));
  }
  return absl::OkStatus();
}

Server::~Server() {
  {
    base::MutexLock lock(&mutex_);
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
    if (sources[1].revents != 0) AcceptFrom(true);
    if (sources[2].revents != 0) AcceptFrom(false);
  }
}

bool Server::Pause() {
  pollfd stop = {wakeup_.get(), POLLIN, 0};
  return base::PollUntil(absl::MakeSpan(&stop, 1), base::Now() + kPause) > 0;
}

void Server::AcceptFrom(bool is_unix) {
  const int listener = is_unix ? unix_listener_.fd() : loopback_.get();
  Connection connection = {.socket = base::FileDescriptor(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC))};
  if (!connection.socket.valid()) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) Pause();
    return;
  }
  if (is_unix) {
    absl::StatusOr<Peer> found = PeerOf(connection.socket.get());
    // A client without a known user has no rights here.
    if (!found.ok()) return;
    connection.user = found->uid;
    connection.peer = std::move(*found);
  } else {
    connection.user = LoopbackUserOf(connection.socket.get());
  }
  if (connection.user.has_value()) connection.user = ids_.OwnerOf(*connection.user);
  if (!Admit(connection)) {
    base::CountBeyond(base::Bound::kConnections);
    return Refuse(connection.socket.get());
  }
  base::MutexLock lock(&mutex_);
  waiting_.push_back(std::move(connection));
}

bool Server::Admit(const Connection& connection) {
  base::MutexLock lock(&mutex_);
  if (is_stopping_ || !PlacesOf(connection).Take(connection.user)) return false;
  open_.insert(connection.socket.get());
  return true;
}

void Server::Work() {
  while (true) {
    Connection connection;
    {
      base::MutexLock lock(&mutex_);
      const auto has_work = [this]()
                                ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_stopping_ || !waiting_.empty(); };
      mutex_.Await(absl::Condition(&has_work));
      if (is_stopping_) return;
      connection = std::move(waiting_.back());
      waiting_.pop_back();
    }
    SocketChannel channel(connection.socket.get());
    service_.Serve(channel, connection.peer, connection.user);
    base::MutexLock lock(&mutex_);
    // This must happen before the descriptor number is reused.
    open_.erase(connection.socket.get());
    PlacesOf(connection).Leave(connection.user);
  }
}

}  // namespace heaptap::http
