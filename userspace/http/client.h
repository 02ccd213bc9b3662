// SPDX-License-Identifier: Apache-2.0
//
// Asks an HTTP server, at a Unix socket or by TCP. The server is not trusted: the time and the size of its answer are
// bounded.
#ifndef HEAPTAP_USERSPACE_HTTP_CLIENT_H_
#define HEAPTAP_USERSPACE_HTTP_CLIENT_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/http/url.h"
#include "userspace/http/wire.h"

namespace heaptap::http {

// Connects to the socket `path`. InvalidArgument: not a path of a socket. NotFound: nothing listens there.
// PermissionDenied. DeadlineExceeded: the server does not accept within `limit`. FailedPrecondition: another error of
// connect(2), which the message names. Internal: no socket. Thread-safe.
absl::StatusOr<base::FileDescriptor> Connect(const std::string& path, absl::Duration limit);

// Connects by TCP to the host of a URL, at the first of its addresses that accepts within `limit`. Looking up a name
// takes the time that the system's resolver takes. NotFound: no such host, or nothing listens there. DeadlineExceeded.
// FailedPrecondition: another error, which the message names. Internal: no socket. Thread-safe.
absl::StatusOr<base::FileDescriptor> Connect(const Url& url, absl::Duration limit);

// Sends a request without a body, and reads the answer within `limit`. Errors: those of ReadAnswer. Thread-safe.
absl::StatusOr<Answer> Exchange(const base::FileDescriptor& connection, absl::string_view method,
                                absl::string_view target, size_t max_body_bytes, absl::Duration limit);

// Gets the document of a URL over a connection to its host. Takes any time, but the server must send a byte within each
// `silence`. Errors: those of ReadAnswer. Thread-safe.
absl::StatusOr<Answer> Get(const base::FileDescriptor& connection, const Url& url, size_t max_body_bytes,
                           absl::Duration silence);

}  // namespace heaptap::http

#endif  // HEAPTAP_USERSPACE_HTTP_CLIENT_H_
