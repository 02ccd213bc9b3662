// SPDX-License-Identifier: Apache-2.0
#include "userspace/report/tree.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace heaptap::report {

Tree MakeTree(const NamedProfile& profile, absl::Span<const Path> paths, const Show& show, Direction direction) {
  Tree tree = {.nodes = {{}}};
  RowNumbers names(profile, show);
  absl::flat_hash_map<std::pair<size_t, size_t>, size_t> children;  // of a node, by name
  for (const Path& path : paths) {
    size_t node = 0;
    tree.nodes[0].measures += path.measures;
    const auto enter = [&](size_t name) {
      const auto [entry, is_new] = children.try_emplace({node, name}, tree.nodes.size());
      if (is_new) {
        tree.nodes[node].children.push_back(entry->second);
        tree.nodes.push_back({.name = names.Name(name)});
      }
      node = entry->second;
      tree.nodes[node].measures += path.measures;
    };
    if (path.frames.empty()) enter(names.AtName(NameOfUnknown()));
    for (size_t i = 0; i < path.frames.size(); i++) {
      enter(names.At(path.frames[direction == Direction::kOutwards ? i : path.frames.size() - 1 - i]));
    }
  }
  const auto value = [&](size_t node) { return std::fabs(Of(Of(tree.nodes[node].measures, show.value), show.unit)); };
  for (Node& node : tree.nodes) {
    std::ranges::stable_sort(node.children, [&](size_t a, size_t b) { return value(a) > value(b); });
  }
  return tree;
}

std::vector<Path> PathsTo(const NamedProfile& profile, absl::Span<const Path> paths, const Show& show,
                          const std::string& function) {
  RowNumbers names(profile, show);
  const size_t wanted = names.AtName(function);
  std::vector<Path> found;
  for (const Path& path : paths) {
    const auto at = std::ranges::find_if(path.frames, [&](FrameId frame) { return names.At(frame) == wanted; });
    if (at == path.frames.end()) continue;
    found.push_back({.frames = std::vector<FrameId>(at, path.frames.end()),
                     .truncated = path.truncated,
                     .measures = path.measures});
  }
  return found;
}

}  // namespace heaptap::report
