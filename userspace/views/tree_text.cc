// SPDX-License-Identifier: Apache-2.0
#include "userspace/views/tree_text.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace heaptap::report {
namespace {

// The width of the figures before the name.
constexpr size_t kTreeFiguresWidth = 19;

class TreeWriter {
 public:
  TreeWriter(const Tree& tree, const Measures& total, const Show& show, const TextOptions& options)
      : tree_(tree), total_(Of(Of(total, show.value), show.unit)), show_(show), options_(options) {}

  std::string Write() && {
    // A stack instead of recursion: a path may have a thousand frames.
    std::vector<Item> rest;
    Push(0, 0, rest);
    while (!rest.empty()) {
      const Item item = rest.back();
      rest.pop_back();
      AddLine(item);
      // The only child of a node continues its line of names.
      const bool branches = tree_.nodes[item.node].children.size() > 1;
      Push(item.node, item.depth + (branches ? 1 : 0), rest);
    }
    if (left_out_ > 0) {
      absl::StrAppendFormat(&text_, "%d branches below %.1f%% are not shown (see --smallest)\n", left_out_,
                            options_.smallest);
    }
    return std::move(text_);
  }

 private:
  struct Item {
    size_t node;
    size_t depth;
  };

  double ValueOf(size_t node) const { return Of(Of(tree_.nodes[node].measures, show_.value), show_.unit); }

  void Push(size_t parent, size_t depth, std::vector<Item>& rest) {
    const std::vector<size_t>& children = tree_.nodes[parent].children;
    for (size_t i = children.size(); i-- > 0;) {
      if (std::fabs(ValueOf(children[i])) < std::fabs(total_) * options_.smallest / 100) {
        left_out_++;
      } else {
        rest.push_back({children[i], depth});
      }
    }
  }

  void AddLine(const Item& item) {
    const double value = ValueOf(item.node);
    const size_t indentation = 2 * item.depth;
    const std::string share = options_.has_percentages ? absl::StrFormat(" %7s", Percent(value, total_)) : "";
    absl::StrAppendFormat(
        &text_, "%9s%s  %s%s\n", Figure(value, show_.unit), share, std::string(indentation, ' '),
        Fit(tree_.nodes[item.node].name, WidthAfter(kTreeFiguresWidth + indentation, options_.width)));
  }

  const Tree& tree_;
  const double total_;
  const Show& show_;
  const TextOptions& options_;
  size_t left_out_ = 0;
  std::string text_;
};

}  // namespace

std::string TreeText(const Tree& tree, const Measures& total, const Show& show, const TextOptions& options) {
  return TreeWriter(tree, total, show, options).Write();
}

}  // namespace heaptap::report
