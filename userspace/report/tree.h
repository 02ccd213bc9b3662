// SPDX-License-Identifier: Apache-2.0
//
// Call paths as a tree of names, from the outermost function inwards or from the innermost outwards.
// Functions here are thread-safe and take linear time, except for sorting.
#ifndef HEAPTAP_USERSPACE_REPORT_TREE_H_
#define HEAPTAP_USERSPACE_REPORT_TREE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "userspace/report/rows.h"

namespace heaptap::report {

struct Node {
  std::string name = {};
  Measures measures = {};             // of the paths through this node
  std::vector<size_t> children = {};  // indices into Tree::nodes, the largest first
};

struct Tree {
  std::vector<Node> nodes;  // the first one is the root, which has no name
};

enum class Direction {
  kInwards,   // the root's children are the outermost functions
  kOutwards,  // the root's children are the functions that allocate; below them stand their callers
};

Tree MakeTree(const NamedProfile& profile, absl::Span<const Path> paths, const Show& show, Direction direction);

// The parts of paths from the outermost function to the innermost one with the name `function`: a tree of these parts
// outwards shows its callers. Paths without this function are left out.
std::vector<Path> PathsTo(const NamedProfile& profile, absl::Span<const Path> paths, const Show& show,
                          const std::string& function);

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_REPORT_TREE_H_
