// SPDX-License-Identifier: Apache-2.0
//
// Messages for people on stderr, each with one write(2), so that lines of several processes do not mix.
#ifndef HEAPTAP_USERSPACE_BASE_MESSAGES_H_
#define HEAPTAP_USERSPACE_BASE_MESSAGES_H_

#include <string>

#include "absl/strings/string_view.h"

namespace heaptap::base {

// Both escape unprintable bytes (Printable).
//
// Writes "heaptap: <line>", truncated if it is very long.
void Say(absl::string_view line);
// Writes the line alone.
void SayPlain(absl::string_view line);

// Makes text that a process chose safe for a terminal: bytes other than printable ASCII become '?'.
std::string AsciiOnly(absl::string_view text);

}  // namespace heaptap::base

#endif  // HEAPTAP_USERSPACE_BASE_MESSAGES_H_
