// SPDX-License-Identifier: Apache-2.0
//
// The HTTP server of a collector, on a Unix socket and, if configured, on a loopback address over TCP.
#ifndef HEAPTAP_USERSPACE_HTTP_SERVER_H_
#define HEAPTAP_USERSPACE_HTTP_SERVER_H_

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/subordinate_ids.h"
#include "userspace/http/access.h"
#include "userspace/http/limits.h"
#include "userspace/http/listener.h"
#include "userspace/http/service.h"

namespace heaptap::http {

struct ServerOptions {
  std::string socket_path;
  std::string listen = {};  // ADDR:PORT, a numeric loopback address: every local user has all rights; "": no TCP
  std::optional<gid_t> group = {};  // members have the rights of root
  Limits limits = {};
};

class Server {
 public:
  // Starts threads, which have the caller's signal mask and serve until destruction.
  // Errors: those of UnixListener::Listen and ListenOnLoopback; ResourceExhausted: the threads cannot be started.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options, Handler handler);

  // Ends all connections and waits for requests in progress, at most the patience of the collector or of the
  // symbolizer.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // The TCP port; 0: none.
  int port() const { return PortOf(loopback_.get()); }

 private:
  // A user of the Unix socket, who owns the subordinate ids too; none: all clients over TCP.
  using User = std::optional<uid_t>;

  Server(const ServerOptions& options, Handler handler, UnixListener unix_listener, base::FileDescriptor loopback,
         base::FileDescriptor wakeup);

  absl::Status StartThreads();
  void Accept();
  void AcceptFrom(int listener, bool is_unix);
  // True: the server shall stop.
  bool Pause();
  void Work();
  // Counts one more connection of this user. False: it cannot be served now.
  bool Admit(int fd, const User& user);

  struct Connection {
    base::FileDescriptor socket;
    std::optional<Peer> peer;
  };

  const Limits limits_;
  const base::SubordinateIds ids_ = base::SubordinateIds::OfSystem();
  Service service_;
  const UnixListener unix_listener_;
  const base::FileDescriptor loopback_;
  const base::FileDescriptor wakeup_;  // an eventfd

  absl::Mutex mutex_;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Connection> waiting_ ABSL_GUARDED_BY(mutex_);  // for a thread; there are as many threads
  std::set<int> open_ ABSL_GUARDED_BY(mutex_);               // sockets of all connections
  std::map<User, size_t> by_user_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace heaptap::http

#endif  // HEAPTAP_USERSPACE_HTTP_SERVER_H_
