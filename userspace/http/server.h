// SPDX-License-Identifier: Apache-2.0
//
// The HTTP server of a collector, on a Unix socket and, if configured, on a loopback address over TCP.
#ifndef HEAPTAP_USERSPACE_HTTP_SERVER_H_
#define HEAPTAP_USERSPACE_HTTP_SERVER_H_

#include <sys/types.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/mutex.h"
#include "userspace/base/subordinate_ids.h"
#include "userspace/http/access.h"
#include "userspace/http/limits.h"
#include "userspace/http/listener.h"
#include "userspace/http/places.h"
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

  // Ends all connections and waits for requests in progress, for at most the patience of the collector or of the
  // symbolizer.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // The TCP port; 0: none.
  int port() const { return PortOf(loopback_.get()); }

 private:
  Server(const ServerOptions& options, Handler handler, UnixListener unix_listener, base::FileDescriptor loopback,
         base::FileDescriptor wakeup);

  absl::Status StartThreads();
  void Accept();
  void AcceptFrom(bool is_unix);
  // True: the server must stop.
  bool Pause();
  void Work();
  struct Connection {
    base::FileDescriptor socket = {};
    std::optional<Peer> peer = {};   // of the Unix socket
    std::optional<uid_t> user = {};  // for a subordinate id, its owner; none: unknown
  };
  // Counts a new connection. False: the connection cannot be served now.
  bool Admit(const Connection& connection);
  Places& PlacesOf(const Connection& connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return connection.peer.has_value() ? unix_places_ : tcp_places_;
  }

  const Limits limits_;
  const base::SubordinateIds ids_ = base::SubordinateIds::OfSystem();
  Service service_;
  const UnixListener unix_listener_;
  const base::FileDescriptor loopback_;
  const base::FileDescriptor wakeup_;  // an eventfd

  base::Mutex mutex_;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Connection> waiting_ ABSL_GUARDED_BY(mutex_);  // for a thread; there is one for each place
  std::set<int> open_ ABSL_GUARDED_BY(mutex_);               // sockets of all connections
  Places unix_places_ ABSL_GUARDED_BY(mutex_);
  Places tcp_places_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace heaptap::http

#endif  // HEAPTAP_USERSPACE_HTTP_SERVER_H_
