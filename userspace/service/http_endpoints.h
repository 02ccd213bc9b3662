// SPDX-License-Identifier: Apache-2.0
//
// From a request to its answer: which path, which process, who may.
#ifndef HEAPTAP_USERSPACE_SERVICE_HTTP_ENDPOINTS_H_
#define HEAPTAP_USERSPACE_SERVICE_HTTP_ENDPOINTS_H_

#include "userspace/service/http_endpoint.h"
#include "userspace/service/http_message.h"

namespace heaptap::service {

// Answers any request. A process that the peer may not see is answered for as one that is not there. No parameter is
// ever a path of a file. Thread-safe for different calls.
HttpAnswer AnswerCall(HttpCall& call);

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_HTTP_ENDPOINTS_H_
