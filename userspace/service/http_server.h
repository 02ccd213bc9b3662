// SPDX-License-Identifier: Apache-2.0
//
// The HTTP server of a collector: on a Unix socket always, by TCP on a loopback address if the administrator wants it.
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
  std::string listen = {};  // ADDR:PORT, a loopback address in numbers; "": no TCP. Every local user then may do all
  std::optional<gid_t> group = {};  // members may see and do what root may
  HttpLimits limits = {};
};

class HttpServer {
 public:
  // Serves in threads of its own, which have the caller's signal mask, until it is destroyed. Refers to `collector`.
  // Errors: UnixListener::Listen's and ListenOnLoopback's; ResourceExhausted: there is no room for the threads.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpOptions& options, Collector& collector);

  // Ends all connections and waits for the answers that are being made: as long as the collector's patience, or that
  // for symbols, at most.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Of TCP; 0: none.
  int port() const { return PortOf(loopback_.get()); }

 private:
  // A user of the Unix socket; nothing: TCP, as one.
  using User = std::optional<uid_t>;

  HttpServer(const HttpOptions& options, Collector& collector, UnixListener unix_listener, elf::FileDescriptor loopback,
             elf::FileDescriptor wakeup);

  absl::Status StartThreads();
  void Accept();
  void AcceptFrom(int listener, bool is_unix);
  void Work();
  // Whether one more connection of this user can be served now; if so, it counts.
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
  std::vector<Connection> waiting_ ABSL_GUARDED_BY(mutex_);  // for a thread; there is one for each
  std::set<int> open_ ABSL_GUARDED_BY(mutex_);               // sockets of all connections
  std::map<User, size_t> by_user_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_HTTP_SERVER_H_
