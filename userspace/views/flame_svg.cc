// SPDX-License-Identifier: Apache-2.0
#include "userspace/views/flame_svg.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "userspace/base/printable_text.h"
#include "userspace/report/text.h"

namespace heaptap::report {
namespace {

// Pixels.
constexpr double kWidth = 1200;
constexpr double kMargin = 10;
constexpr double kRow = 18;
constexpr double kTitle = 48;
constexpr double kNarrowestBox = 0.3;
// The average width of a letter of the font below.
constexpr double kLetter = 6.6;
// Fewer letters tell nothing.
constexpr size_t kFewestLetters = 3;

// A path may have a thousand frames; a picture of them all could not be opened.
constexpr size_t kMaxDepth = 256;

std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

// A warm colour that depends on the name alone, so that a function looks the same in every picture. FNV-1a: the same on
// every machine.
std::string ColourOf(absl::string_view name) {
  uint32_t hash = 2166136261;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619;
  const uint32_t hue = 10 + hash % 45;
  const uint32_t lightness = 62 + hash / 64 % 16;
  return absl::StrFormat("hsl(%d,75%%,%d%%)", hue, lightness);
}

// The part of a name that fits into a box.
std::string Label(absl::string_view name, double width) {
  const auto letters = static_cast<size_t>(std::max(0.0, width - 4) / kLetter);
  if (letters < kFewestLetters) return "";
  if (base::CountCharacters(name) <= letters) return std::string(name);
  return absl::StrCat(base::FirstCharacters(name, letters - 2), "..");
}

class SvgWriter {
 public:
  SvgWriter(const Tree& tree, const Show& show) : tree_(tree), show_(show), total_(ValueOf(0)) {}

  std::string Write(const Subject& subject) && {
    std::vector<Box> rest;
    if (total_ > 0) Push(0, kMargin, 0, rest);
    size_t deepest = 0;
    while (!rest.empty()) {
      const Box box = rest.back();
      rest.pop_back();
      deepest = std::max(deepest, box.depth);
      Draw(box);
      if (box.depth + 1 < kMaxDepth) Push(box.node, box.x, box.depth + 1, rest);
    }
    const double height = kTitle + kRow * static_cast<double>(deepest + 1) + kMargin;
    return absl::StrCat(
        absl::StrFormat("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f "
                        "%.0f\" font-family=\"monospace\" font-size=\"11\">\n",
                        kWidth, height, kWidth, height),
        "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n", "<text x=\"10\" y=\"24\" font-size=\"15\">",
        Escaped(subject.name), ": ", Figure(total_, show_.unit), show_.unit == Unit::kObjects ? " objects " : " ",
        WordFor(show_.value), "</text>\n", boxes_, "</svg>\n");
  }

 private:
  struct Box {
    size_t node;
    double x;
    size_t depth;
  };

  double ValueOf(size_t node) const { return Of(Of(tree_.nodes[node].measures, show_.value), show_.unit); }
  double WidthOf(size_t node) const { return (kWidth - 2 * kMargin) * ValueOf(node) / total_; }

  void Push(size_t parent, double x, size_t depth, std::vector<Box>& rest) const {
    for (const size_t child : tree_.nodes[parent].children) {
      const double width = WidthOf(child);
      if (width < kNarrowestBox) continue;
      rest.push_back({child, x, depth});
      x += width;
    }
  }

  void Draw(const Box& box) {
    const Node& node = tree_.nodes[box.node];
    const double width = WidthOf(box.node);
    const double y = kTitle + kRow * static_cast<double>(box.depth);
    absl::StrAppendFormat(&boxes_,
                          "<g><title>%s: %s, %s, %d samples</title><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                          "height=\"%.0f\" fill=\"%s\" rx=\"1\"/>",
                          Escaped(node.name), Figure(ValueOf(box.node), show_.unit), Percent(ValueOf(box.node), total_),
                          Of(node.measures, show_.value).samples, box.x, y, std::max(width - 0.5, kNarrowestBox),
                          kRow - 1, ColourOf(node.name));
    if (const std::string label = Label(node.name, width); !label.empty()) {
      absl::StrAppendFormat(&boxes_, "<text x=\"%.1f\" y=\"%.1f\">%s</text>", box.x + 2, y + 12, Escaped(label));
    }
    boxes_.append("</g>\n");
  }

  const Tree& tree_;
  const Show& show_;
  const double total_;
  std::string boxes_;
};

}  // namespace

std::string FlameSvg(const Tree& tree, const Subject& subject, const Show& show) {
  return SvgWriter(tree, show).Write(subject);
}

}  // namespace heaptap::report
