// SPDX-License-Identifier: Apache-2.0
//
// `heaptap report --tree` and `--callers`: a tree of call paths in text.
#ifndef HEAPTAP_USERSPACE_VIEWS_TREE_TEXT_H_
#define HEAPTAP_USERSPACE_VIEWS_TREE_TEXT_H_

#include <string>

#include "userspace/report/text.h"
#include "userspace/report/tree.h"

namespace heaptap::report {

// One line for each node: figure, share of `total`, and the name, indented. Nodes below the smallest share are left
// out, and counted. A chain of only children keeps its indentation, so that deep paths fit. Thread-safe.
std::string TreeText(const Tree& tree, const Measures& total, const Show& show, const TextOptions& options);

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_VIEWS_TREE_TEXT_H_
