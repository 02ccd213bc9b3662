// SPDX-License-Identifier: Apache-2.0
//
// What gperftools' and Go's protocols share: names of addresses, and the command line.
#ifndef HEAPTAP_USERSPACE_SERVICE_HTTP_ENDPOINTS_SYMBOL_H_
#define HEAPTAP_USERSPACE_SERVICE_HTTP_ENDPOINTS_SYMBOL_H_

#include <cstddef>
#include <string>
#include <vector>

#include "userspace/service/http_endpoint.h"

namespace heaptap::service {

// In one question. A large profile has some ten thousand.
inline constexpr size_t kMaxAddresses = 1 << 17;

// GET, HEAD: that there are symbols. POST of "0x<address>+0x<address>...": a line "0x<address>\t<name>" for each, in
// that order. Readers have made the addresses lie in calls. Where there is no symbol the name is FrameNames'. `join`
// makes one name of those at an address, innermost first.
HttpReply AnswerSymbols(HttpCall& call, const ProcessSummary& process,
                        std::string (*join)(const std::vector<std::string>& names));

// The process's arguments, made printable, with NULs between them.
HttpReply AnswerCommandLine(HttpCall& call, const ProcessSummary& process);

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_HTTP_ENDPOINTS_SYMBOL_H_
