// SPDX-License-Identifier: Apache-2.0
//
// `heaptap report --peek`: functions with their direct callers and callees, as `pprof -peek` shows them.
#ifndef HEAPTAP_USERSPACE_VIEWS_PEEK_TEXT_H_
#define HEAPTAP_USERSPACE_VIEWS_PEEK_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "userspace/report/rows.h"
#include "userspace/report/text.h"

namespace heaptap::report {

// A block for each name that `expression` (RE2) matches in part, the largest total first, at most `options.top` blocks:
// a line for each caller, the function itself with the memory that it allocated and with its total, and a line for each
// callee. The memory that goes through a call is a share of the function's total. A call counts once in a path, though
// it may be recursive. Callers and callees below the smallest share are left out, and counted. InvalidArgument: the
// expression is wrong. NotFound: no name matches. Thread-safe.
absl::StatusOr<std::string> PeekText(const NamedProfile& profile, absl::Span<const Path> paths, const Show& show,
                                     const TextOptions& options, const std::string& expression);

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_VIEWS_PEEK_TEXT_H_
