// SPDX-License-Identifier: Apache-2.0
//
// `heaptap report --top`: a table by function, line, library, thread, size or age.
#ifndef HEAPTAP_USERSPACE_VIEWS_TOP_TEXT_H_
#define HEAPTAP_USERSPACE_VIEWS_TOP_TEXT_H_

#include <string>

#include "absl/types/span.h"
#include "userspace/report/rows.h"
#include "userspace/report/text.h"

namespace heaptap::report {

// One line for each name: the memory that it allocated itself, with standard error and share, the memory that it
// allocated with its callees, with share, samples, and the name. Thread-safe.
std::string TopText(const NamedProfile& profile, absl::Span<const Path> paths, const Show& show,
                    const TextOptions& options);

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_VIEWS_TOP_TEXT_H_
