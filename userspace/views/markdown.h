// SPDX-License-Identifier: Apache-2.0
//
// `heaptap report --markdown`: the short form for a ticket or an assistant, on one screen.
#ifndef HEAPTAP_USERSPACE_VIEWS_MARKDOWN_H_
#define HEAPTAP_USERSPACE_VIEWS_MARKDOWN_H_

#include <string>

#include "absl/types/span.h"
#include "userspace/report/rows.h"
#include "userspace/report/summary_text.h"
#include "userspace/report/text.h"

namespace heaptap::report {

// A heading, the totals, a table of the call paths that hold most (innermost function first, at most kMarkdownFrames of
// them), what is missing, and what to run next. Names are code spans, so no text of a program becomes Markdown or HTML.
// Thread-safe.
std::string Markdown(const NamedProfile& profile, absl::Span<const Path> paths, const Subject& subject,
                     const Show& show, const TextOptions& options);

inline constexpr size_t kMarkdownFrames = 5;

// A code span of any text in a cell of a table (GitHub Flavored Markdown, 6.1 and 4.10).
std::string CodeSpan(absl::string_view text);

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_VIEWS_MARKDOWN_H_
