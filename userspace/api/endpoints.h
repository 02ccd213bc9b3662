// SPDX-License-Identifier: Apache-2.0
//
// Routes a request to its endpoint: finds the path and the process, and checks access.
#ifndef HEAPTAP_USERSPACE_API_ENDPOINTS_H_
#define HEAPTAP_USERSPACE_API_ENDPOINTS_H_

#include "userspace/api/endpoint.h"
#include "userspace/crews/crews.h"
#include "userspace/http/message.h"

namespace heaptap::api {

// The handler of a server for this collector, which answers any request. A process that the peer may not see is treated
// as one that does not exist. No parameter is ever the path of a file. Refers to its arguments. `history`: null if no
// history is kept. Thread-safe for different calls.
http::Handler MakeHandler(Collector& collector, worker::Crews& crews, HistoryPlace* history = nullptr);

}  // namespace heaptap::api

#endif  // HEAPTAP_USERSPACE_API_ENDPOINTS_H_
