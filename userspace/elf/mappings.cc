// SPDX-License-Identifier: Apache-2.0
#include "userspace/elf/mappings.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace heaptap::elf {
namespace {

// Takes a number and the `separator` after it off the front of `text`. False: `text` begins with something else.
template <typename Number>
bool TakeNumber(absl::string_view& text, int base, char separator, Number& number) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc()) return false;
  text.remove_prefix(end - text.data());
  return absl::ConsumePrefix(&text, absl::string_view(&separator, 1));
}

// START-END PERMISSIONS OFFSET MAJOR:MINOR INODE [blanks PATH]
struct Line {
  Mapping mapping;
  bool executable;
};

std::optional<Line> ParseLine(absl::string_view line) {
  Mapping mapping;
  if (!TakeNumber(line, 16, '-', mapping.start) || !TakeNumber(line, 16, ' ', mapping.end)) return std::nullopt;
  if (mapping.start >= mapping.end || line.size() < 5 || line[4] != ' ') return std::nullopt;
  bool executable = line[2] == 'x';
  line.remove_prefix(5);
  if (!TakeNumber(line, 16, ' ', mapping.file_offset) || !TakeNumber(line, 16, ':', mapping.device_major) ||
      !TakeNumber(line, 16, ' ', mapping.device_minor)) {
    return std::nullopt;
  }
  // Without a path the inode ends the line, on some kernels with a blank after it.
  auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), mapping.inode, 10);
  if (error != std::errc()) return std::nullopt;
  line.remove_prefix(end - line.data());
  if (!line.empty() && line[0] != ' ') return std::nullopt;
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));

  if (executable && !line.empty()) {
    mapping.deleted = line[0] == '/' && absl::ConsumeSuffix(&line, " (deleted)");
    // The newline is the only character that the kernel escapes; a backslash stays as it is.
    mapping.path = absl::StrReplaceAll(line, {{"\\012", "\n"}});
  }
  return Line{std::move(mapping), executable};
}

}  // namespace

bool Mappings::Add(Mapping mapping) {
  if (mapping.start >= mapping.end) return false;
  // A mapping that splits another one adds two.
  if (mappings_.size() + 2 > kMaxMappings) return false;
  if (path_bytes_ + mapping.path.size() > kMaxPathBytes) return false;

  // Those that it overlaps, and what is left of them.
  const auto first =
      std::ranges::partition_point(mappings_, [&](const auto& one) { return one->end <= mapping.start; });
  auto last = first;
  std::shared_ptr<Mapping> before;
  std::shared_ptr<Mapping> after;
  for (; last != mappings_.end() && (*last)->start < mapping.end; ++last) {
    const Mapping& old = **last;
    path_bytes_ -= old.path.size();
    if (old.start < mapping.start) {
      before = std::make_shared<Mapping>(old);
      before->end = mapping.start;
    }
    if (old.end > mapping.end) {
      after = std::make_shared<Mapping>(old);
      after->start = mapping.end;
      after->file_offset += mapping.end - old.start;
    }
  }
  std::vector<std::shared_ptr<const Mapping>> added;
  if (before != nullptr) added.push_back(std::move(before));
  added.push_back(std::make_shared<const Mapping>(std::move(mapping)));
  if (after != nullptr) added.push_back(std::move(after));
  for (const auto& one : added) path_bytes_ += one->path.size();
  const auto place = mappings_.erase(first, last);
  mappings_.insert(place, std::make_move_iterator(added.begin()), std::make_move_iterator(added.end()));
  return true;
}

bool Mappings::SetBuildId(const Mapping& mapping, absl::string_view build_id) {
  const auto found =
      std::ranges::partition_point(mappings_, [&](const auto& one) { return one->start < mapping.start; });
  if (found == mappings_.end() || (*found)->start != mapping.start || (*found)->inode != mapping.inode ||
      (*found)->device_major != mapping.device_major || (*found)->device_minor != mapping.device_minor ||
      !(*found)->build_id.empty()) {
    return false;
  }
  auto changed = std::make_shared<Mapping>(**found);
  changed->build_id = std::string(build_id);
  *found = std::move(changed);
  return true;
}

const Mapping* Mappings::Find(uint64_t address) const {
  const auto found = std::ranges::partition_point(mappings_, [&](const auto& one) { return one->end <= address; });
  return found != mappings_.end() && (*found)->start <= address ? found->get() : nullptr;
}

absl::StatusOr<std::vector<Mapping>> ParseMaps(absl::string_view text) {
  std::vector<Mapping> mappings;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    std::optional<Line> parsed = ParseLine(line);
    if (!parsed.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("not a line of /proc/PID/maps: ", absl::CHexEscape(line.substr(0, 80))));
    }
    if (parsed->executable) mappings.push_back(std::move(parsed->mapping));
  }
  return mappings;
}

std::optional<std::string> BuildIdOfHex(absl::string_view digits) {
  if (digits.empty() || digits.size() % 2 != 0 || digits.size() / 2 > kMaxBuildIdBytes) return std::nullopt;
  std::string bytes(digits.size() / 2, 0);
  for (size_t i = 0; i < bytes.size(); i++) {
    uint8_t byte = 0;
    const char* end = digits.data() + 2 * i + 2;
    if (std::from_chars(end - 2, end, byte, 16).ptr != end) return std::nullopt;
    bytes[i] = static_cast<char>(byte);
  }
  return bytes;
}

}  // namespace heaptap::elf
