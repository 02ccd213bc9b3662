// SPDX-License-Identifier: Apache-2.0
//
// What the server's protocols have in common. Each protocol is a table of endpoints in its own file
// (endpoints_*.cc).
#ifndef HEAPTAP_USERSPACE_API_ENDPOINT_H_
#define HEAPTAP_USERSPACE_API_ENDPOINT_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "userspace/api/collector.h"
#include "userspace/api/history_place.h"
#include "userspace/api/process_symbols.h"
#include "userspace/http/access.h"
#include "userspace/http/client_time.h"
#include "userspace/http/message.h"
#include "userspace/json/json.h"
#include "userspace/profile/figures.h"
#include "userspace/profile/snapshot.h"

namespace heaptap::api {

// The context of one request.
struct Call {
  Collector& collector;
  ProcessSymbols& symbols;
  const http::Request& request;
  const http::Access& access;
  http::Asker& asker;
  const http::Sleep& sleep;
  HistoryPlace* history = nullptr;  // null: no history is kept
};

using Reply = absl::StatusOr<http::Response>;

// An answer of these fields, and of the version of the schema before them.
http::Response FieldsAnswer(const json::Json& fields);

enum Methods : uint8_t { kGet = 1, kHead = 2, kPost = 4, kRead = kGet | kHead };

// How a protocol's clients expect errors.
enum class ErrorForm {
  kText,  // a line
  kGo,    // a line, and the header that makes `go tool pprof` show it
  kJson,  // {"error": "..."}
};

// A path of one process: /pid/PID/<path>, or /<path>?pid=PID, or /<path> if the client can see only one process.
struct ProcessEndpoint {
  absl::string_view path;
  uint8_t methods;  // Methods
  ErrorForm errors;
  Reply (*answer)(Call& call, const profile::NamedProcess& process);
  bool needs_prefix = false;  // the path exists only after /pid/PID
};

// A path of the whole collector.
struct CollectorEndpoint {
  absl::string_view path;  // without the first '/'
  uint8_t methods;
  ErrorForm errors;
  Reply (*answer)(Call& call);
};

// The tables of the protocols.
absl::Span<const ProcessEndpoint> MtevEndpoints();     // as libmtev answers
absl::Span<const ProcessEndpoint> PprofEndpoints();    // gperftools' protocol, for jeprof
absl::Span<const ProcessEndpoint> GoPprofEndpoints();  // as Go's net/http/pprof answers
absl::Span<const ProcessEndpoint> ApiProcessEndpoints();
absl::Span<const CollectorEndpoint> ApiEndpoints();
absl::Span<const CollectorEndpoint> StatusEndpoints();  // for Prometheus, for supervisors
absl::Span<const CollectorEndpoint> HistoryEndpoints();
absl::Span<const CollectorEndpoint> PageEndpoints();  // for people
absl::Span<const ProcessEndpoint> PageProcessEndpoints();

// The processes that the peer may see, by PID. ResourceExhausted: the peer has no time left.
absl::StatusOr<std::vector<profile::ProcessSummary>> VisibleProcesses(Call& call);
// One of these processes. NotFound: there is none with this PID.
absl::StatusOr<profile::NamedProcess> VisibleProcess(Call& call, pid_t pid);

// The kernel's limit (PID_MAX_LIMIT).
inline constexpr uint32_t kMaxPid = 1 << 22;

// Parses a whole number of decimal digits only, without leading zeros.
std::optional<uint32_t> ParseNumber(absl::string_view text, uint32_t least, uint32_t most);

}  // namespace heaptap::api

#endif  // HEAPTAP_USERSPACE_API_ENDPOINT_H_
