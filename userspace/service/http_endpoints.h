// SPDX-License-Identifier: Apache-2.0
//
// Routes a request to its endpoint: finds the path and the process, and checks access.
#ifndef HEAPTAP_USERSPACE_SERVICE_HTTP_ENDPOINTS_H_
#define HEAPTAP_USERSPACE_SERVICE_HTTP_ENDPOINTS_H_

#include "userspace/service/http_endpoint.h"
#include "userspace/service/http_message.h"

namespace heaptap::service {

// Answers any request. A process that the peer may not see is treated as one that does not exist. No parameter is ever
// the path of a file. Thread-safe for different calls.
HttpAnswer AnswerCall(HttpCall& call);

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_HTTP_ENDPOINTS_H_
