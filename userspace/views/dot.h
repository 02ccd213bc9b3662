// SPDX-License-Identifier: Apache-2.0
//
// `heaptap report --dot`: the call graph for graphviz, like the pictures of jeprof and pprof.
//
// Format: the DOT language (graphviz.org/doc/info/lang.html). A node is a function, with the memory that it allocated
// itself and the memory that it allocated with its callees. An edge is a call, with the memory that was allocated
// through it.
#ifndef HEAPTAP_USERSPACE_VIEWS_DOT_H_
#define HEAPTAP_USERSPACE_VIEWS_DOT_H_

#include <string>

#include "absl/types/span.h"
#include "userspace/report/rows.h"
#include "userspace/report/summary_text.h"

namespace heaptap::report {

// The `most` functions with the largest totals, without those below `smallest` percent. Names of many thousand bytes
// are cut, because graphviz refuses them. Thread-safe.
std::string Dot(const NamedProfile& profile, absl::Span<const Path> paths, const Subject& subject, const Show& show,
                size_t most, double smallest);

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_VIEWS_DOT_H_
