// SPDX-License-Identifier: Apache-2.0
#include "userspace/base/printable_text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace heaptap::base {
namespace {

constexpr size_t kMaxShown = 3;  // texts that SomeOf shows

// The number of bytes of the character at the front of `text`; 0 if it is a control character or not UTF-8. Table 3-7
// of the Unicode standard: only the shortest form, no surrogates, nothing above U+10FFFF.
size_t PrintableLength(absl::string_view text) {
  auto byte = [text](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  auto continues = [&byte](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const uint8_t first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const uint8_t second = byte(1);
  if (!continues(1)) return 0;
  // U+0080 to U+009F are control characters too.
  if (first == 0xc2) return second >= 0xa0 ? 2 : 0;
  if (first >= 0xc3 && first <= 0xdf) return 2;
  if (!continues(2)) return 0;
  if (first == 0xe0) return second >= 0xa0 ? 3 : 0;
  if (first == 0xed) return second <= 0x9f ? 3 : 0;
  if (first >= 0xe1 && first <= 0xef) return 3;
  if (!continues(3)) return 0;
  if (first == 0xf0) return second >= 0x90 ? 4 : 0;
  if (first == 0xf4) return second <= 0x8f ? 4 : 0;
  return first >= 0xf1 && first <= 0xf3 ? 4 : 0;
}

bool BeginsCharacter(char byte) { return (static_cast<uint8_t>(byte) & 0xc0) != 0x80; }

}  // namespace

size_t CountCharacters(absl::string_view text) { return std::count_if(text.begin(), text.end(), BeginsCharacter); }

absl::string_view FirstCharacters(absl::string_view text, size_t most) {
  size_t characters = 0;
  for (size_t i = 0; i < text.size(); i++) {
    if (BeginsCharacter(text[i]) && characters++ == most) return text.substr(0, i);
  }
  return text;
}

absl::string_view LastCharacters(absl::string_view text, size_t most) {
  const size_t all = CountCharacters(text);
  if (all > most) text.remove_prefix(FirstCharacters(text, all - most).size());
  return text;
}

void AppendPrintable(absl::string_view text, std::string& out) {
  while (!text.empty()) {
    size_t length = PrintableLength(text);
    if (length == 0) {
      absl::StrAppendFormat(&out, "\\%03o", static_cast<uint8_t>(text[0]));
      length = 1;
    } else {
      out.append(text.data(), length);
    }
    text.remove_prefix(length);
  }
}

std::string Printable(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  AppendPrintable(text, out);
  return out;
}

std::string SomeOf(const std::set<std::string>& texts) {
  std::vector<std::string> shown;
  for (const std::string& text : texts) {
    if (shown.size() == kMaxShown) break;
    shown.push_back(Printable(text));
  }
  const size_t rest = texts.size() - shown.size();
  return absl::StrCat(absl::StrJoin(shown, ", "), rest > 0 ? absl::StrCat(" and ", rest, " more") : "");
}

}  // namespace heaptap::base
