// SPDX-License-Identifier: Apache-2.0
#include "userspace/formats/jeprof_symbols_reader.h"

#include <charconv>
#include <string>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "userspace/base/printable_text.h"

namespace heaptap::formats {
namespace {

constexpr absl::string_view kSymbolSection = "--- symbol\n";
// Bytes of a wrong line that a message shows.
constexpr size_t kShownSymbolBytes = 60;

// Takes the first line off the text, without its end.
absl::string_view TakeLine(absl::string_view& text) {
  const size_t end = text.find('\n');
  const absl::string_view line = text.substr(0, end);
  text.remove_prefix(end == absl::string_view::npos ? text.size() : end + 1);
  return line;
}

// "0x<address> <name>--<name>"
bool ReadSymbol(absl::string_view line, Symbols& symbols) {
  uint64_t address = 0;
  if (!absl::ConsumePrefix(&line, "0x")) return false;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), address, 16);
  if (error != std::errc()) return false;
  line.remove_prefix(static_cast<size_t>(end - line.data()));
  if (!absl::ConsumePrefix(&line, " ")) return false;
  const std::vector<absl::string_view> names = absl::StrSplit(line, "--", absl::SkipEmpty());
  std::vector<profile::SourceFrame>& frames = symbols[address];
  frames.clear();
  frames.reserve(names.size());
  for (size_t i = names.size(); i-- > 0;) frames.push_back({.function = std::string(names[i])});
  return true;
}

}  // namespace

absl::StatusOr<SymbolizedText> SplitSymbolized(absl::string_view text, absl::string_view name) {
  SymbolizedText result = {.dump = text};
  if (!absl::ConsumePrefix(&text, kSymbolSection)) return result;
  size_t number = 1;
  const auto wrong = [&](absl::string_view expected, absl::string_view line) {
    return absl::InvalidArgumentError(absl::StrCat(base::Printable(name), ": line ", number, ": expected ", expected,
                                                   ", found ", base::Printable(line.substr(0, kShownSymbolBytes))));
  };
  for (;;) {
    if (text.empty()) return wrong("--- after the symbols", "the end");
    const absl::string_view line = TakeLine(text);
    number++;
    if (line == "---") break;
    if (absl::StartsWith(line, "binary=")) continue;
    if (!ReadSymbol(line, result.symbols)) return wrong("0x<address> <name>", line);
  }
  const absl::string_view heading = TakeLine(text);
  number++;
  if (!absl::StartsWith(heading, "--- ")) return wrong("--- heap", heading);
  result.dump = text;
  return result;
}

}  // namespace heaptap::formats
