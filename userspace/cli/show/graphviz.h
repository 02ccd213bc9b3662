// SPDX-License-Identifier: Apache-2.0
//
// Draws a graph with graphviz, if it is installed. Thread-safe.
#ifndef HEAPTAP_USERSPACE_CLI_SHOW_GRAPHVIZ_H_
#define HEAPTAP_USERSPACE_CLI_SHOW_GRAPHVIZ_H_

#include <string>

#include "absl/status/statusor.h"

namespace heaptap::cli {

// The output of `dot -T<format>` for a graph in the DOT language. NotFound: the program dot is not installed;
// FailedPrecondition: it failed; its own messages are on stderr.
absl::StatusOr<std::string> DrawWithGraphviz(const std::string& graph, const char* format);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_SHOW_GRAPHVIZ_H_
