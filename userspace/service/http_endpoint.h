// SPDX-License-Identifier: Apache-2.0
//
// What the server's protocols have in common. Each protocol is a table of endpoints in its own file
// (http_endpoints_*.cc).
#ifndef HEAPTAP_USERSPACE_SERVICE_HTTP_ENDPOINT_H_
#define HEAPTAP_USERSPACE_SERVICE_HTTP_ENDPOINT_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "userspace/service/collector.h"
#include "userspace/service/http_access.h"
#include "userspace/service/http_message.h"
#include "userspace/service/process_symbols.h"

namespace heaptap::service {

// The context of one request.
struct HttpCall {
  Collector& collector;
  ProcessSymbols& symbols;
  const HttpRequest& request;
  Access access;
  // Waits. Returns false as soon as the client disconnects.
  std::function<bool(absl::Duration)> sleep;
};

using HttpReply = absl::StatusOr<HttpAnswer>;

enum HttpMethods : uint8_t { kGet = 1, kHead = 2, kPost = 4, kRead = kGet | kHead };

// How a protocol's clients expect errors.
enum class ErrorForm {
  kText,  // a line
  kGo,    // a line, and the header that makes `go tool pprof` show it
  kJson,  // {"error": "..."}
};

// A path of one process: /pid/PID/<path>, or /<path>?pid=PID, or /<path> if the client can see only one process.
struct ProcessEndpoint {
  absl::string_view path;
  uint8_t methods;  // HttpMethods
  ErrorForm errors;
  HttpReply (*answer)(HttpCall& call, const ProcessSummary& process);
  bool needs_prefix = false;  // the path exists only after /pid/PID
};

// A path of the whole collector.
struct CollectorEndpoint {
  absl::string_view path;  // without the first '/'
  uint8_t methods;
  ErrorForm errors;
  HttpReply (*answer)(HttpCall& call);
};

// The tables of the protocols.
absl::Span<const ProcessEndpoint> MtevEndpoints();     // as libmtev answers
absl::Span<const ProcessEndpoint> PprofEndpoints();    // gperftools' protocol, for jeprof
absl::Span<const ProcessEndpoint> GoPprofEndpoints();  // as Go's net/http/pprof answers
absl::Span<const ProcessEndpoint> ApiProcessEndpoints();
absl::Span<const CollectorEndpoint> ApiEndpoints();
absl::Span<const CollectorEndpoint> StatusEndpoints();  // for Prometheus, for supervisors, for people

// The processes that the peer may see, by PID.
absl::StatusOr<std::vector<ProcessSummary>> VisibleProcesses(HttpCall& call);

// The profile of exactly this process, not of a later one with its PID. NotFound: it has ended.
absl::StatusOr<ProfileSnapshot> SnapshotOf(HttpCall& call, const ProcessSummary& process);
// The same for its allocator's figures.
absl::StatusOr<AllocatorFigures> AllocatorOf(HttpCall& call, const ProcessSummary& process);

// Whether the PID still has the same books, and so has meant the same process since `process` was looked up.
bool IsStillThere(HttpCall& call, const ProcessSummary& process);

absl::Status NoSuchProcess(pid_t pid);

// Parses a whole number of decimal digits only, without leading zeros.
std::optional<uint32_t> ParseNumber(absl::string_view text, uint32_t least, uint32_t most);

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_HTTP_ENDPOINT_H_
