// SPDX-License-Identifier: Apache-2.0
//
// Fetches profiles from web servers: heaptap's own, and other programs that serve theirs, such as Go's net/http/pprof.
//
// Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_CLI_SUBJECTS_REMOTE_PROFILE_H_
#define HEAPTAP_USERSPACE_CLI_SUBJECTS_REMOTE_PROFILE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace heaptap::cli {

struct RemoteLimits {
  absl::Duration connect = absl::Seconds(10);
  // From a byte to the next: a server may collect samples before it answers (?seconds=30).
  absl::Duration silence = absl::Seconds(60);
  size_t bytes = size_t{1} << 30;
};

// The document at an http:// URL, which may have any bytes. Does not follow redirections. Messages begin with the URL.
// InvalidArgument: no such URL (http::ParseUrl). NotFound: no such host, nothing listens, or 404. PermissionDenied: 401
// or 403. DeadlineExceeded, ResourceExhausted: a limit. FailedPrecondition, DataLoss: all other failures.
absl::StatusOr<std::string> FetchRemote(const std::string& url, const RemoteLimits& limits = {});

// A file name for what was made from a URL: its host and its path, in letters, digits, "-", "_" and ".".
std::string FileNameOfUrl(absl::string_view url);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_SUBJECTS_REMOTE_PROFILE_H_
