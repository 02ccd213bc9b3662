// SPDX-License-Identifier: Apache-2.0
//
// What the server's protocols have in common. Each has a file of its own (http_endpoints_*.cc) and gives a table.
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

// All that answering one request takes.
struct HttpCall {
  Collector& collector;
  ProcessSymbols& symbols;
  const HttpRequest& request;
  Access access;
  // Waits. False, and at once: nobody waits for the answer any more.
  std::function<bool(absl::Duration)> sleep;
};

using HttpReply = absl::StatusOr<HttpAnswer>;

enum HttpMethods : uint8_t { kGet = 1, kHead = 2, kPost = 4, kRead = kGet | kHead };

// How a protocol's clients expect to be told of errors.
enum class ErrorForm {
  kText,  // a line
  kGo,    // a line, and the header by which `go tool pprof` knows that it is for people
  kJson,  // {"error": "..."}
};

// A path of one process: /pid/PID/<path>, or /<path>?pid=PID, or /<path> if only one process is there to see.
struct ProcessEndpoint {
  absl::string_view path;
  uint8_t methods;  // HttpMethods
  ErrorForm errors;
  HttpReply (*answer)(HttpCall& call, const ProcessSummary& process);
  bool needs_prefix = false;  // there is no such path without /pid/PID
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

// The profile of that very process. NotFound: it has ended.
absl::StatusOr<ProfileSnapshot> SnapshotOf(HttpCall& call, const ProcessSummary& process);
// The same for its allocator's figures.
absl::StatusOr<AllocatorFigures> AllocatorOf(HttpCall& call, const ProcessSummary& process);

// Whether the PID still has the books that it had: if so, it has had them since `process` was looked up.
bool IsStillThere(HttpCall& call, const ProcessSummary& process);

absl::Status NoSuchProcess(pid_t pid);

// A whole number in decimal digits and nothing else, without zeros in front.
std::optional<uint32_t> ParseNumber(absl::string_view text, uint32_t least, uint32_t most);

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_HTTP_ENDPOINT_H_
