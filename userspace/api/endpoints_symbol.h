// SPDX-License-Identifier: Apache-2.0
//
// What gperftools' and Go's protocols share: the names of addresses, and the command line.
#ifndef HEAPTAP_USERSPACE_API_ENDPOINTS_SYMBOL_H_
#define HEAPTAP_USERSPACE_API_ENDPOINTS_SYMBOL_H_

#include <cstddef>
#include <string>
#include <vector>

#include "userspace/api/endpoint.h"
#include "userspace/profile/figures.h"

namespace heaptap::api {

// The most addresses in one request. A large profile has some ten thousand.
inline constexpr size_t kMaxAddresses = 1 << 17;
// About the most bytes that the names of the addresses may take. A program chooses its names, and a client may send an
// address many times.
inline constexpr size_t kMaxSymbolBytes = 64 << 20;

// GET and HEAD: whether there are symbols. POST of "0x<address>+0x<address>...": a line "0x<address>\t<name>" for each,
// in that order. Clients send addresses inside calls. FrameNames names addresses without a symbol. `join` makes one
// name of the names at an address, innermost first.
Reply AnswerSymbols(Call& call, const profile::NamedProcess& process,
                    std::string (*join)(const std::vector<std::string>& names));

// The process's arguments, made printable, with NULs between them.
Reply AnswerCommandLine(Call& call, const profile::NamedProcess& process);

}  // namespace heaptap::api

#endif  // HEAPTAP_USERSPACE_API_ENDPOINTS_SYMBOL_H_
