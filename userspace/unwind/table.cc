// SPDX-License-Identifier: Apache-2.0
#include "userspace/unwind/table.h"

#include <elf.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "userspace/elf/compressed_section.h"
#include "userspace/elf/known_code.h"
#include "userspace/unwind/call_frame.h"
#include "userspace/unwind/columns.h"
#include "userspace/unwind/cursor.h"

namespace heaptap::unwind {
namespace {

// A section in memory. Movable, because `section.bytes` is set only when the section is parsed.
struct Frames {
  std::string bytes;
  CallFrames parsed;

  absl::Status Parse(FrameSection section) {
    section.bytes = bytes;
    auto frames = CallFrames::Parse(section);
    if (!frames.ok()) return frames.status();
    parsed = *std::move(frames);
    return absl::OkStatus();
  }
};

bool HasBytes(const elf::Section* section) { return section && section->type != SHT_NOBITS && section->size > 0; }

// A pointer in .eh_frame_hdr, which is the base of pointers relative to data.
std::optional<uint64_t> TakeHeaderPointer(Cursor& cursor, uint8_t encoding, uint64_t address) {
  if (encoding == kPointerOmitted || (encoding & kPointerIndirect)) return std::nullopt;
  uint64_t pointer = cursor.TakePointer(encoding, address);
  if (!cursor.ok()) return std::nullopt;
  return pointer;
}

// The bytes of a section. A forged size costs no memory.
absl::StatusOr<std::string> ReadFrames(const elf::File& file, uint64_t offset, uint64_t size, absl::string_view what) {
  uint64_t end;
  if (size == 0 || size > kMaxFrameBytes || __builtin_add_overflow(offset, size, &end)) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": impossible size"));
  }
  auto last = file.Read(end - 1, 1, 1, what);
  if (!last.ok()) return last.status();
  return file.Read(offset, size, kMaxFrameBytes, what);
}

// .eh_frame of a file without section headers. Its size is unknown: it lies in one segment, and its header says how
// many functions it has.
absl::Status ReadEhFrameByHeader(const elf::File& file, Frames& frames) {
  auto is_header = [](const elf::Segment& segment) { return segment.type == PT_GNU_EH_FRAME; };
  auto header = std::find_if(file.segments().begin(), file.segments().end(), is_header);
  if (header == file.segments().end()) return absl::OkStatus();
  auto bytes = file.Read(header->offset, std::min<uint64_t>(header->file_size, 64), 64, ".eh_frame_hdr");
  if (!bytes.ok()) return bytes.status();

  Cursor cursor(*bytes, header->address);
  uint8_t version = cursor.Take<uint8_t>();
  uint8_t frames_encoding = cursor.Take<uint8_t>();
  uint8_t count_encoding = cursor.Take<uint8_t>();
  cursor.Take<uint8_t>();  // encoding of the search table, which is not read
  auto address = TakeHeaderPointer(cursor, frames_encoding, header->address);
  if (version != 1 || !address) return absl::InvalidArgumentError(".eh_frame_hdr: broken");
  auto count = TakeHeaderPointer(cursor, count_encoding, header->address);

  for (const elf::Segment& segment : file.segments()) {
    if (segment.type != PT_LOAD || *address < segment.address) continue;
    uint64_t distance = *address - segment.address;
    if (distance >= segment.file_size || segment.offset > std::numeric_limits<uint64_t>::max() - distance) continue;
    uint64_t size = std::min(segment.file_size - distance, kMaxFrameBytes);
    auto content = ReadFrames(file, segment.offset + distance, size, ".eh_frame");
    if (!content.ok()) return content.status();
    frames.bytes = *std::move(content);
    return frames.Parse(
        {.format = FrameSection::kEhFrame, .address = *address, .functions = count.value_or(kMaxFunctions)});
  }
  return absl::InvalidArgumentError(".eh_frame_hdr: points outside all segments");
}

absl::Status ReadSection(const elf::File& file, const elf::Section& section, FrameSection::Format format,
                         Frames& frames) {
  auto bytes = ReadFrames(file, section.offset, section.size, section.name);
  if (!bytes.ok()) return bytes.status();
  if ((section.flags & SHF_COMPRESSED) != 0) {
    bytes = elf::Uncompressed(*bytes, kMaxFrameBytes);
    // The file then counts as one without such a section.
    if (absl::IsUnimplemented(bytes.status())) return absl::OkStatus();
    if (!bytes.ok()) return bytes.status();
  }
  frames.bytes = *std::move(bytes);
  return frames.Parse({.format = format, .address = section.address});
}

// The link-time addresses of code.
class Code {
 public:
  explicit Code(const elf::File& file) {
    for (const elf::Segment& segment : file.segments()) {
      if (segment.type != PT_LOAD || !(segment.flags & PF_X) || segment.file_size == 0) continue;
      uint64_t room = std::numeric_limits<uint64_t>::max() - segment.address;
      ranges_.push_back({segment.address, segment.address + std::min(segment.file_size, room)});
    }
    std::sort(ranges_.begin(), ranges_.end());
  }

  bool empty() const { return ranges_.empty(); }
  uint64_t base() const { return ranges_.front().first; }

  bool Holds(const Function& function) const {
    auto next = std::upper_bound(ranges_.begin(), ranges_.end(), std::pair(function.start, ~uint64_t{0}));
    if (next == ranges_.begin() || function.end > std::prev(next)->second) return false;
    return function.end - base() <= std::numeric_limits<uint32_t>::max();
  }

 private:
  std::vector<std::pair<uint64_t, uint64_t>> ranges_;
};

uint32_t EndRule() { return heaptap_unwind_rule(HEAPTAP_CFA_END, 0, HEAPTAP_RBP_SAME, 0, HEAPTAP_RA_AT_CFA); }
uint32_t SignalRule() { return heaptap_unwind_rule(HEAPTAP_CFA_SIGNAL, 0, HEAPTAP_RBP_SAME, 0, HEAPTAP_RA_AT_CFA); }

// A function of either section.
struct Entry {
  const CallFrames* frames;
  const Function* function;
};

class Builder {
 public:
  // `gap_rule`: the rule of code that no function covers.
  Builder(Code code, uint32_t gap_rule) : code_(std::move(code)), gap_rule_(gap_rule) {
    table_.base = code_.base();
    if (gap_rule_ != 0) Append(table_.base, gap_rule_);
  }

  Table::Statistics& statistics() { return table_.statistics; }

  void Add(const CallFrames& frames) {
    statistics().broken += frames.broken();
    for (const Function& function : frames.functions()) {
      if (code_.Holds(function)) {
        entries_.push_back({&frames, &function});
      } else {
        ++statistics().outside;
      }
    }
  }

  absl::StatusOr<Table> Build() && {
    auto starts_before = [](const Entry& a, const Entry& b) { return a.function->start < b.function->start; };
    // Stable: the first of several functions at one address counts, so .eh_frame wins over .debug_frame.
    if (!std::is_sorted(entries_.begin(), entries_.end(), starts_before)) {
      std::stable_sort(entries_.begin(), entries_.end(), starts_before);
    }
    for (size_t i = 0; i < entries_.size(); ++i) {
      const Function& function = *entries_[i].function;
      if (i > 0 && entries_[i - 1].function->start == function.start) {
        ++statistics().overlapping;
        continue;
      }
      size_t next = i + 1;
      while (next < entries_.size() && entries_[next].function->start == function.start) ++next;
      uint64_t room = next < entries_.size() ? entries_[next].function->start : std::numeric_limits<uint64_t>::max();
      if (room < function.end) ++statistics().overlapping;
      uint64_t end = std::min(room, function.end);
      Append(entries_[i], end);
      if (end < room) Append(end, gap_rule_);
      if (table_.rows.size() > kMaxRows)
        return absl::InvalidArgumentError(absl::StrCat("call frames: more than ", kMaxRows, " rows"));
    }
    table_.rows.shrink_to_fit();
    return std::move(table_);
  }

 private:
  // The rows of a function up to `end`.
  void Append(const Entry& entry, uint64_t end) {
    const Function& function = *entry.function;
    size_t rows_before = table_.rows.size();
    uint64_t unsupported = 0;
    bool sound = true;
    if (entry.frames->IsSignalFrame(function)) {
      Append(function.start, SignalRule());
    } else {
      sound = entry.frames->ForEachRow(function, [&](uint64_t address, const Columns& columns) {
        if (address >= end) return;
        uint32_t rule = RuleOf(columns);
        unsupported += heaptap_unwind_cfa_kind(rule) == HEAPTAP_CFA_UNKNOWN;
        Append(address, rule);
      });
    }
    if (sound) {
      ++statistics().functions;
      statistics().unsupported += unsupported;
      return;
    }
    ++statistics().broken;
    table_.rows.resize(rows_before);
    Append(function.start, gap_rule_);
  }

  void Append(uint64_t address, uint32_t rule) {
    if (table_.rows.size() > kMaxRows || (!table_.rows.empty() && table_.rows.back().rule == rule)) return;
    const uint32_t pc = static_cast<uint32_t>(address - table_.base);
    if (!table_.rows.empty() && table_.rows.back().pc == pc) table_.rows.pop_back();
    table_.rows.push_back({.pc = pc, .rule = rule});
  }

  Code code_;
  uint32_t gap_rule_;
  Table table_;
  std::vector<Entry> entries_;
};

// Gives known code its rule, if it is in a gap.
void AddKnownCode(const elf::KnownCode& code, uint32_t gap_rule, Table& table) {
  // A walk looks for the rule of a return address one byte before it.
  const uint64_t begin = code.begin - 1 - table.base;
  const uint64_t end = code.end - table.base;
  if (code.begin <= table.base || end > std::numeric_limits<uint32_t>::max()) return;
  const auto next = std::ranges::upper_bound(table.rows, begin, {}, &Row::pc);
  const uint32_t rule = next == table.rows.begin() ? 0 : std::prev(next)->rule;
  if (rule != gap_rule || (next != table.rows.end() && next->pc < end)) return;
  std::vector<Row> rows = {
      {.pc = static_cast<uint32_t>(begin), .rule = code.kind == elf::KnownCode::kSignal ? SignalRule() : EndRule()}};
  if (next == table.rows.end() || next->pc > end) rows.push_back({.pc = static_cast<uint32_t>(end), .rule = gap_rule});
  auto place = next;
  if (next != table.rows.begin() && std::prev(next)->pc == begin) place = table.rows.erase(std::prev(next));
  table.rows.insert(place, rows.begin(), rows.end());
}

// Whether Go made a part of the file's code. That part keeps frame pointers. Its .debug_frame does not describe the
// change of stacks before a call of C.
bool IsOfGo(const elf::File& file) {
  return std::ranges::any_of(file.sections(),
                             [](const elf::Section& section) { return absl::EndsWith(section.name, ".gopclntab"); });
}

}  // namespace

absl::StatusOr<Table> BuildTable(const elf::File& file) {
  Code code(file);
  if (code.empty()) return absl::InvalidArgumentError("no executable code");
  const bool is_of_go = IsOfGo(file);
  const uint32_t gap_rule = is_of_go ? HEAPTAP_RULE_FRAME_POINTER : 0;
  Builder builder(std::move(code), gap_rule);

  Frames eh_frame;
  const elf::Section* section = file.FindSection(".eh_frame");
  absl::Status status = HasBytes(section) ? ReadSection(file, *section, FrameSection::kEhFrame, eh_frame)
                                          : ReadEhFrameByHeader(file, eh_frame);
  if (!status.ok()) return status;
  builder.Add(eh_frame.parsed);

  Frames debug_frame;
  section = is_of_go ? nullptr : file.FindSection(".debug_frame");
  if (HasBytes(section)) {
    status = ReadSection(file, *section, FrameSection::kDebugFrame, debug_frame);
    if (!status.ok()) return status;
    builder.Add(debug_frame.parsed);
  }
  absl::StatusOr<Table> table = std::move(builder).Build();
  // Without rows the file has no rules at all, and walks through it follow frame pointers.
  if (!table.ok() || table->rows.empty()) return table;
  for (const elf::KnownCode& code : elf::FindKnownCode(file)) AddKnownCode(code, gap_rule, *table);
  return table;
}

const Row* Find(absl::Span<const Row> rows, uint32_t pc) {
  auto after = std::upper_bound(rows.begin(), rows.end(), pc, [](uint32_t pc, const Row& row) { return pc < row.pc; });
  return after == rows.begin() ? nullptr : &*std::prev(after);
}

uint32_t RuleAt(const Table& table, uint64_t address) {
  uint64_t pc = address - table.base;
  if (pc > std::numeric_limits<uint32_t>::max()) return 0;
  const Row* row = Find(table.rows, static_cast<uint32_t>(pc));
  return row ? row->rule : 0;
}

}  // namespace heaptap::unwind
