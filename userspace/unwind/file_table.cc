// SPDX-License-Identifier: Apache-2.0
#include "userspace/unwind/file_table.h"

#include <elf.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/require.h"
#include "userspace/unwind/table.h"

namespace heaptap::unwind {
namespace {

constexpr uint32_t kNoPc = ~uint32_t{0};

// The number of nodes for `count` entries.
uint64_t NodesFor(uint64_t count) { return (count + HEAPTAP_ROWS_PER_NODE - 1) / HEAPTAP_ROWS_PER_NODE; }

// The number of entries of each level of the tree, from the root to the rows.
std::vector<uint64_t> EntriesOfLevels(uint64_t rows) {
  std::vector<uint64_t> entries = {rows};
  while (NodesFor(entries.back()) > 1) entries.push_back(NodesFor(entries.back()));
  std::ranges::reverse(entries);
  return entries;
}

std::vector<elf::Segment> CodeSegments(const elf::File& file) {
  std::vector<elf::Segment> segments;
  for (const elf::Segment& segment : file.segments()) {
    if (segment.type == PT_LOAD && (segment.flags & PF_X) != 0 && segment.file_size > 0) segments.push_back(segment);
  }
  std::sort(segments.begin(), segments.end(),
            [](const elf::Segment& a, const elf::Segment& b) { return a.offset < b.offset; });
  return segments;
}

class FileTableBuilder {
 public:
  explicit FileTableBuilder(uint64_t base) { table_.base = base; }

  // REQUIRES: offsets do not descend.
  void Append(uint64_t offset, uint32_t rule) {
    if (IsBeyond(offset)) return;
    const uint64_t pc = offset - table_.base;
    HEAPTAP_REQUIRE(table_.rows.empty() || table_.rows.back().pc <= pc);
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
  FileTableBuilder builder(segments.front().offset);
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

uint32_t CountLevels(uint64_t rows) { return static_cast<uint32_t>(EntriesOfLevels(rows).size()); }

uint64_t CountNodes(uint64_t rows) {
  uint64_t nodes = 0;
  for (const uint64_t entries : EntriesOfLevels(rows)) nodes += NodesFor(entries);
  return nodes;
}

std::vector<heaptap_rows> MakeNodes(absl::Span<const heaptap_row> rows, uint64_t first, uint64_t count) {
  const std::vector<uint64_t> levels = EntriesOfLevels(rows.size());
  std::vector<heaptap_rows> nodes;
  uint64_t level_begin = 0;  // the number of the level's first node
  for (size_t level = 0; level < levels.size(); level++) {
    const uint64_t level_end = level_begin + NodesFor(levels[level]);
    uint64_t rows_of_entry = 1;
    for (size_t below = level + 1; below < levels.size(); below++) rows_of_entry *= HEAPTAP_ROWS_PER_NODE;
    for (uint64_t node = std::max(first, level_begin); node < level_end && nodes.size() < count; node++) {
      heaptap_rows& made = nodes.emplace_back();
      std::ranges::fill(made.rows, heaptap_row{kNoPc, 0});
      const uint64_t begin = (node - level_begin) * HEAPTAP_ROWS_PER_NODE;
      const uint64_t end = std::min<uint64_t>(begin + HEAPTAP_ROWS_PER_NODE, levels[level]);
      for (uint64_t entry = begin; entry < end; entry++) {
        heaptap_row& row = made.rows[entry - begin];
        row = rows[entry * rows_of_entry];
        // The entries of a level are the first pcs of the nodes below.
        if (level + 1 < levels.size()) row.rule = static_cast<uint32_t>(level_end + entry);
      }
    }
    level_begin = level_end;
  }
  return nodes;
}

}  // namespace heaptap::unwind
