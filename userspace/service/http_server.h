// SPDX-License-Identifier: Apache-2.0
//
// The HTTP server of a collector, on a Unix socket and, if configured, on a loopback address over TCP.
#ifndef HEAPTAP_USERSPACE_SERVICE_HTTP_SERVER_H_
#define HEAPTAP_USERSPACE_SERVICE_HTTP_SERVER_H_

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
#include "userspace/elf/file_descriptor.h"
#include "userspace/service/collector.h"
#include "userspace/service/http_access.h"
#include "userspace/service/http_limits.h"
#include "userspace/service/http_listener.h"
#include "userspace/service/http_service.h"

namespace heaptap::service {

struct HttpOptions {
  std::string socket_path;
  std::string listen = {};  // ADDR:PORT, a numeric loopback address: every local user has all rights; "": no TCP
  std::optional<gid_t> group = {};  // members have the rights of root
  HttpLimits limits = {};
};

class HttpServer {
 public:
  // Starts threads, which have the caller's signal mask and serve until destruction. Refers to `collector`.
  // Errors: those of UnixListener::Listen and ListenOnLoopback; ResourceExhausted: the threads cannot be started.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpOptions& options, Collector& collector);

  // Ends all connections and waits for requests in progress, at most the patience of the collector or of the
  // symbolizer.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // The TCP port; 0: none.
  int port() const { return PortOf(loopback_.get()); }

 private:
  // A user of the Unix socket; none: all clients over TCP.
  using User = std::optional<uid_t>;

  HttpServer(const HttpOptions& options, Collector& collector, UnixListener unix_listener, elf::FileDescriptor loopback,
             elf::FileDescriptor wakeup);

  absl::Status StartThreads();
  void Accept();
  void AcceptFrom(int listener, bool is_unix);
  void Work();
  // Counts one more connection of this user. False: it cannot be served now.
  bool Admit(int fd, const User& user);

  struct Connection {
    elf::FileDescriptor socket;
    std::optional<Peer> peer;
  };

  const HttpLimits limits_;
  HttpService service_;
  const UnixListener unix_listener_;
  const elf::FileDescriptor loopback_;
  const elf::FileDescriptor wakeup_;  // an eventfd

  absl::Mutex mutex_;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Connection> waiting_ ABSL_GUARDED_BY(mutex_);  // for a thread; there are as many threads
  std::set<int> open_ ABSL_GUARDED_BY(mutex_);               // sockets of all connections
  std::map<User, size_t> by_user_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_HTTP_SERVER_H_
