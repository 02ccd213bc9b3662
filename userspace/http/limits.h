// SPDX-License-Identifier: Apache-2.0
//
// Limits on the time, the bytes and the connections of HTTP clients.
#ifndef HEAPTAP_USERSPACE_HTTP_LIMITS_H_
#define HEAPTAP_USERSPACE_HTTP_LIMITS_H_

#include <cstddef>

#include "absl/time/time.h"

namespace heaptap::http {

struct Limits {
  absl::Duration idle = absl::Seconds(5);          // between an answer and the next request
  absl::Duration header_time = absl::Seconds(5);   // from the first byte of a request to the last of its header
  absl::Duration body_time = absl::Seconds(10);    // from then to the last byte of the body
  absl::Duration answer_time = absl::Seconds(60);  // for sending the whole answer
  size_t header_bytes = 32 << 10;
  // A request for the names of a million addresses takes 16 MB; jeprof asks for the names of one profile.
  size_t body_bytes = 4 << 20;
  size_t requests_per_connection = 100;
  // Connections at once; each has a thread. Scrapers may run several requests with ?seconds=N at once.
  size_t connections = 32;  // over the Unix socket; of these, connections_per_user are kept for root
  size_t connections_by_tcp = 16;
  size_t connections_per_user = 8;  // over each of the two
};

}  // namespace heaptap::http

#endif  // HEAPTAP_USERSPACE_HTTP_LIMITS_H_
