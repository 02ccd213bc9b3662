// SPDX-License-Identifier: Apache-2.0
#include "userspace/elf/moved_code.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace heaptap::elf {
namespace {

// One line: START-END PERMISSIONS OFFSET MAJOR:MINOR INODE [blanks PATH]
struct MapsLine {
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t offset = 0;
  bool is_executable = false;
  absl::string_view permissions = {};
  absl::string_view file = {};  // from MAJOR on
  bool has_file = false;
  bool has_name = false;
};

bool TakeHex(absl::string_view& text, char separator, uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (error != std::errc() || end == text.data() + text.size() || *end != separator) return false;
  text.remove_prefix(end - text.data() + 1);
  return true;
}

std::optional<MapsLine> Parse(absl::string_view text) {
  constexpr size_t kPermissionsBytes = 4;
  MapsLine line;
  if (!TakeHex(text, '-', line.start) || !TakeHex(text, ' ', line.end) || text.size() <= kPermissionsBytes) {
    return std::nullopt;
  }
  line.permissions = text.substr(0, kPermissionsBytes);
  line.is_executable = text[2] == 'x';
  text.remove_prefix(kPermissionsBytes + 1);
  if (!TakeHex(text, ' ', line.offset)) return std::nullopt;
  line.file = text;
  const size_t inode = text.find(' ');
  if (inode == absl::string_view::npos || inode + 1 == text.size()) return std::nullopt;
  line.has_file = text[inode + 1] != '0';
  line.has_name =
      text.find_first_not_of(' ', std::min(text.find(' ', inode + 1), text.size())) != absl::string_view::npos;
  return line;
}

bool IsAnonymous(const MapsLine& line) { return !line.has_file && !line.has_name; }

}  // namespace

std::vector<MovedCode> FindMovedCode(absl::string_view maps, size_t most) {
  std::vector<MovedCode> moved;
  std::optional<MapsLine> before;  // the latest mapping of a file
  absl::string_view before_text;   // its line
  std::vector<MovedCode> between;  // the moved code since `before`, without a gap
  uint64_t end = 0;                // of the latest mapping
  for (size_t begin = 0; begin < maps.size();) {
    const size_t bytes = std::min(maps.find('\n', begin), maps.size()) - begin;
    const absl::string_view text = maps.substr(begin, bytes);
    const std::optional<MapsLine> line = Parse(text);
    const bool follows = line.has_value() && before.has_value() && line->start == end;
    if (line.has_value() && IsAnonymous(*line) && follows) {
      if (line->is_executable && moved.size() + between.size() < most) {
        between.push_back({.start = line->start,
                           .end = line->end,
                           .file_offset = before->offset + (line->start - before->start),
                           .line_begin = begin,
                           .line_bytes = bytes});
        between.back().line = absl::StrFormat("%x-%x %s %08x %s", line->start, line->end, line->permissions,
                                              between.back().file_offset, before->file);
      }
    } else {
      const bool is_same = follows && line->has_file && line->file == before->file &&
                           line->offset == before->offset + (line->start - before->start);
      if (is_same && !between.empty()) {
        // The path of a mapping is parsed only if it is executable.
        std::string neighbour(before_text);
        neighbour[neighbour.find(' ') + 3] = 'x';
        const absl::StatusOr<std::vector<Mapping>> parsed = ParseMaps(neighbour);
        for (MovedCode& one : between) {
          if (!parsed.ok() || parsed->empty()) break;
          one.neighbour = parsed->front();
          moved.push_back(std::move(one));
        }
      }
      between.clear();
      before = line.has_value() && line->has_file ? line : std::nullopt;
      before_text = text;
    }
    end = line.has_value() ? line->end : 0;
    begin += bytes + 1;
  }
  return moved;
}

std::string WithMovedCode(absl::string_view maps, const std::vector<MovedCode>& moved) {
  std::string text;
  size_t done = 0;
  for (const MovedCode& one : moved) {
    absl::StrAppend(&text, maps.substr(done, one.line_begin - done), one.line);
    done = one.line_begin + one.line_bytes;
  }
  absl::StrAppend(&text, maps.substr(done));
  return text;
}

}  // namespace heaptap::elf
