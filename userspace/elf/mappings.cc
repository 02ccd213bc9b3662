// SPDX-License-Identifier: Apache-2.0
#include "userspace/elf/mappings.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
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

// Whether both map the same file, as far as is known, or neither maps a file.
bool IsSameFile(const Mapping& a, const Mapping& b) {
  return a.inode == b.inode && a.device_major == b.device_major && a.device_minor == b.device_minor &&
         (a.generation == b.generation || a.generation == 0 || b.generation == 0);
}

// Whether an address in both is the same code: both map the same part of one file, as far as is known, or neither maps
// a file.
bool IsSameCode(const Mapping& a, const Mapping& b) {
  return IsSameFile(a, b) && (a.inode == 0 || a.file_offset - a.start == b.file_offset - b.start);
}

}  // namespace

std::vector<Mapping> InAgreement(const std::vector<Mapping>& placed, std::vector<Mapping> latest) {
  auto first = placed.begin();
  std::erase_if(latest, [&](const Mapping& mapping) {
    first = std::find_if(first, placed.end(), [&](const Mapping& one) { return one.end > mapping.start; });
    for (auto one = first; one != placed.end() && one->start < mapping.end; ++one) {
      if (!IsSameCode(*one, mapping)) return true;
    }
    return false;
  });
  return latest;
}

bool Mappings::Add(Mapping mapping, const WhenMapped& when) {
  if (mapping.start >= mapping.end) return false;
  // A mapping that splits another one adds two.
  if (mappings_.size() + 2 > kMaxMappings || path_bytes_ + mapping.path.size() > kMaxPathBytes) {
    refused_++;
    return false;
  }

  // The mappings that it overlaps, and the parts of them that are left.
  const auto first =
      std::ranges::partition_point(mappings_, [&](const auto& one) { return one->end <= mapping.start; });
  auto last = first;
  std::shared_ptr<Mapping> before;
  std::shared_ptr<Mapping> after;
  for (; last != mappings_.end() && (*last)->start < mapping.end; ++last) {
    const Mapping& old = **last;
    if (IsSameCode(old, mapping)) {
      // /proc/PID/maps shows neither of these.
      if (mapping.generation == 0) mapping.generation = old.generation;
      if (mapping.build_id.empty()) mapping.build_id = old.build_id;
    } else {
      KeepFormer(old, mapping, when);
    }
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

void Mappings::KeepFormer(const Mapping& old, const Mapping& mapping, const WhenMapped& when) {
  if (when.time == 0) return;
  Mapping part = old;
  part.start = std::max(old.start, mapping.start);
  part.end = std::min(old.end, mapping.end);
  part.file_offset += part.start - old.start;
  if (!part.build_id.empty()) IdentifyFormer(part, part.build_id);
  // A file that is mapped here again and again has one place.
  const auto known = std::ranges::find_if(former_, [&](const FormerMapping& one) {
    return one.start == part.start && one.mapping->end - one.mapping->start == part.end - part.start &&
           one.mapping->file_offset == part.file_offset && IsSameFile(*one.mapping, part);
  });
  std::shared_ptr<const Mapping> place;
  if (known != former_.end()) {
    place = known->mapping;
  } else {
    Mapping moved = part;
    moved.start = next_former_;
    moved.end = next_former_ + (part.end - part.start);
    place = std::make_shared<const Mapping>(std::move(moved));
  }
  const FormerMapping former = {.mapping = std::move(place), .start = part.start, .until = when.time};
  if (when.since < when.time) Forget(former, when.since);
  AddFormer(former);
}

void Mappings::AddFormer(FormerMapping former) {
  if (former.mapping->start < kFormerBegin || former.mapping->end <= former.mapping->start) return;
  const uint64_t last = former_.empty() ? 0 : former_.back().until;
  if (former.until < last) return;
  const auto known =
      std::ranges::find_if(former_, [&](const FormerMapping& one) { return *one.mapping == *former.mapping; });
  if (known != former_.end()) {
    former.mapping = known->mapping;
  } else if (former.mapping->end > 2 * kFormerBegin || path_bytes_ + former.mapping->path.size() > kMaxPathBytes) {
    return Forget(former, last);
  } else {
    path_bytes_ += former.mapping->path.size();
    next_former_ = std::max(next_former_, former.mapping->end);
  }
  former_.push_back(std::move(former));
  if (former_.size() <= kMaxFormer) return;
  // Most stacks are taken soon after their code was mapped for the first time, so the first ones stay.
  const auto dropped = former_.begin() + kMaxFormer / 2;
  Forget(*dropped, std::prev(dropped)->until);
  if (dropped->mapping.use_count() == 1) path_bytes_ -= dropped->mapping->path.size();
  former_.erase(dropped);
}

void Mappings::Forget(const FormerMapping& former, uint64_t since) {
  const uint64_t end = former.start + (former.mapping->end - former.mapping->start);
  AddForgotten({.begin = former.start, .end = end, .since = since, .until = former.until});
}

void Mappings::AddForgotten(const ForgottenRange& range) {
  auto joined = std::ranges::find_if(
      forgotten_, [&](const ForgottenRange& one) { return one.begin < range.end && range.begin < one.end; });
  if (joined == forgotten_.end() && forgotten_.size() < kMaxForgotten) return forgotten_.push_back(range);
  if (joined == forgotten_.end()) --joined;
  joined->begin = std::min(joined->begin, range.begin);
  joined->end = std::max(joined->end, range.end);
  joined->since = std::min(joined->since, range.since);
  joined->until = std::max(joined->until, range.until);
}

uint64_t Mappings::Place(uint64_t address, std::optional<uint64_t> time) const {
  // Above all addresses that mappings hold.
  const uint64_t unknown = address + 2 * kFormerBegin;
  const uint64_t call = address - 1;
  const auto held = [call](const FormerMapping& one) { return one.Held(call); };
  const bool is_forgotten = std::ranges::any_of(forgotten_, [&](const ForgottenRange& range) {
    const bool was_then = !time.has_value() || (range.since <= *time && *time < range.until);
    return was_then && range.begin <= call && call < range.end;
  });
  if (is_forgotten) return unknown;
  if (!time.has_value()) return std::ranges::any_of(former_, held) ? unknown : address;
  const auto later =
      std::ranges::partition_point(former_, [&](const FormerMapping& one) { return one.until <= *time; });
  const auto found = std::find_if(later, former_.end(), held);
  return found == former_.end() ? address : address - found->start + found->mapping->start;
}

std::vector<Mapping> Mappings::All() const {
  std::vector<Mapping> all(begin(), end());
  for (const FormerMapping& one : former_) all.push_back(*one.mapping);
  std::ranges::sort(all, {}, &Mapping::start);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

void Mappings::IdentifyFormer(const Mapping& file, absl::string_view build_id) {
  std::map<const Mapping*, std::shared_ptr<const Mapping>> changed;
  for (FormerMapping& one : former_) {
    if (!one.mapping->build_id.empty() || !IsSameFile(*one.mapping, file)) continue;
    std::shared_ptr<const Mapping>& identified = changed[one.mapping.get()];
    if (identified == nullptr) {
      Mapping copy = *one.mapping;
      copy.build_id = std::string(build_id);
      identified = std::make_shared<const Mapping>(std::move(copy));
    }
    one.mapping = identified;
  }
}

bool Mappings::SetBuildId(const Mapping& mapping, absl::string_view build_id) {
  IdentifyFormer(mapping, build_id);
  const auto found =
      std::ranges::partition_point(mappings_, [&](const auto& one) { return one->start < mapping.start; });
  if (found == mappings_.end() || (*found)->start != mapping.start || !IsSameFile(**found, mapping) ||
      !(*found)->build_id.empty()) {
    return false;
  }
  auto changed = std::make_shared<Mapping>(**found);
  changed->build_id = std::string(build_id);
  *found = std::move(changed);
  return true;
}

const Mapping* Mappings::Find(uint64_t address) const {
  if (address >= kFormerBegin && address < next_former_) {
    const auto former = std::ranges::find_if(
        former_, [&](const FormerMapping& one) { return one.mapping->start <= address && address < one.mapping->end; });
    if (former != former_.end()) return former->mapping.get();
  }
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
