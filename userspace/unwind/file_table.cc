// SPDX-License-Identifier: Apache-2.0
#include "userspace/unwind/file_table.h"

#include <elf.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/unwind/table.h"

namespace heaptap::unwind {
namespace {

constexpr uint32_t kNoPc = ~uint32_t{0};

// The number of nodes for `count` entries.
uint64_t NodesFor(uint64_t count) { return (count + HEAPTAP_ROWS_PER_NODE - 1) / HEAPTAP_ROWS_PER_NODE; }

std::vector<elf::Segment> CodeSegments(const elf::File& file) {
  std::vector<elf::Segment> segments;
  for (const elf::Segment& segment : file.segments()) {
    if (segment.type == PT_LOAD && (segment.flags & PF_X) != 0 && segment.file_size > 0) segments.push_back(segment);
  }
  std::sort(segments.begin(), segments.end(),
            [](const elf::Segment& a, const elf::Segment& b) { return a.offset < b.offset; });
  return segments;
}

class Builder {
 public:
  explicit Builder(uint64_t base) { table_.base = base; }

  // REQUIRES: offsets do not descend.
  void Append(uint64_t offset, uint32_t rule) {
    if (IsBeyond(offset)) return;
    const uint64_t pc = offset - table_.base;
    if (!table_.rows.empty() && table_.rows.back().pc == pc) table_.rows.pop_back();
    if (!table_.rows.empty() && table_.rows.back().rule == rule) return;
    table_.rows.push_back({.pc = static_cast<uint32_t>(pc), .rule = rule});
  }

  // Whether an offset is too far from the first one for a row.
  bool IsBeyond(uint64_t offset) const { return offset - table_.base >= kNoPc; }

  uint64_t size() const { return table_.rows.size(); }

  FileTable Build() && {
    table_.rows.shrink_to_fit();
    return std::move(table_);
  }

 private:
  FileTable table_;
};

}  // namespace

bool operator==(const FileTable& a, const FileTable& b) {
  return a.base == b.base &&
         std::equal(a.rows.begin(), a.rows.end(), b.rows.begin(), b.rows.end(),
                    [](const heaptap_row& x, const heaptap_row& y) { return x.pc == y.pc && x.rule == y.rule; });
}

absl::StatusOr<FileTable> ReadFileTable(const elf::File& file) {
  absl::StatusOr<Table> table = BuildTable(file);
  if (!table.ok()) return table.status();
  const Table::Statistics& statistics = table->statistics;
  if (statistics.functions == 0 && statistics.broken + statistics.outside > 0) {
    return absl::InvalidArgumentError("call frames: every function is unreadable");
  }
  if (table->rows.empty()) return FileTable();
  const std::vector<elf::Segment> segments = CodeSegments(file);
  Builder builder(segments.front().offset);
  uint64_t done = 0;  // rows exist up to this offset; segments of a hostile file may overlap
  for (const elf::Segment& segment : segments) {
    if (segment.offset < done || segment.file_size > std::numeric_limits<uint64_t>::max() - segment.offset) continue;
    // Segments ascend, so no later one has a row either. A hostile file may have thousands of them, each with all rows.
    if (builder.IsBeyond(segment.offset)) break;
    builder.Append(segment.offset, RuleAt(*table, segment.address));
    const uint64_t pc = segment.address - table->base;
    auto row = std::upper_bound(table->rows.begin(), table->rows.end(), pc,
                                [](uint64_t pc, const Row& row) { return pc < row.pc; });
    for (; row != table->rows.end() && row->pc - pc < segment.file_size; ++row) {
      if (builder.IsBeyond(segment.offset + (row->pc - pc))) break;
      builder.Append(segment.offset + (row->pc - pc), row->rule);
    }
    done = segment.offset + segment.file_size;
    builder.Append(done, 0);
    // Segments of a hostile file may all have the same addresses.
    if (builder.size() > kMaxRows)
      return absl::InvalidArgumentError(absl::StrCat("call frames: more than ", kMaxRows, " rows"));
  }
  return std::move(builder).Build();
}

uint32_t RuleAtOffset(const FileTable& table, uint64_t offset) {
  const uint64_t pc = offset - table.base;
  if (pc >= kNoPc) return 0;
  const Row* row = Find(table.rows, static_cast<uint32_t>(pc));
  return row == nullptr ? 0 : row->rule;
}

Tree MakeTree(absl::Span<const heaptap_row> rows) {
  // From the leaves up: the entries of a level are the first pcs of the nodes below.
  std::vector<std::vector<heaptap_row>> levels = {std::vector<heaptap_row>(rows.begin(), rows.end())};
  while (NodesFor(levels.back().size()) > 1) {
    const std::vector<heaptap_row>& below = levels.back();
    std::vector<heaptap_row> level;
    for (size_t i = 0; i < below.size(); i += HEAPTAP_ROWS_PER_NODE) level.push_back({.pc = below[i].pc, .rule = 0});
    levels.push_back(std::move(level));
  }
  std::reverse(levels.begin(), levels.end());

  Tree tree = {.levels = static_cast<uint32_t>(levels.size()), .nodes = {}};
  for (size_t level = 0; level < levels.size(); level++) {
    std::vector<heaptap_row>& entries = levels[level];
    const bool is_lowest = level + 1 == levels.size();
    const size_t first_below = tree.nodes.size() + NodesFor(entries.size());
    for (size_t i = 0; i < entries.size(); i++) {
      if (!is_lowest) entries[i].rule = static_cast<uint32_t>(first_below + i);
      const size_t place = i % HEAPTAP_ROWS_PER_NODE;
      if (place == 0) {
        tree.nodes.emplace_back();
        std::fill(std::begin(tree.nodes.back().rows), std::end(tree.nodes.back().rows), heaptap_row{kNoPc, 0});
      }
      tree.nodes.back().rows[place] = entries[i];
    }
  }
  return tree;
}

uint64_t CountNodes(uint64_t rows) {
  uint64_t nodes = 0;
  for (uint64_t count = rows; count > 0;) {
    const uint64_t level = NodesFor(count);
    nodes += level;
    count = level > 1 ? level : 0;
  }
  return nodes;
}

}  // namespace heaptap::unwind
