// SPDX-License-Identifier: Apache-2.0
//
// Tests the search in a table that consists of nodes (bpf/unwind.h).
#include <algorithm>
#include <cstdint>

#include "gtest/gtest.h"
#include "tests/unit/unwind_simulation.h"

// bpf/code.bpf.h
extern "C" uint32_t search_rows(const heaptap_rows* node, uint32_t pc);

namespace heaptap::harness {
namespace {

class TreeTest : public ::testing::TestWithParam<uint32_t> {};

TEST_P(TreeTest, SearchFindsWhatTheTableSays) {
  const uint32_t count = GetParam();
  Simulation process;
  unwind::FileTable table;
  table.base = 0x5000;
  uint32_t pc = 3;
  for (uint32_t i = 0; i < count; i++) {
    table.rows.push_back({pc, i + 1});
    pc += 1 + i % 5;
  }
  process.Load(kKeys[kLibrary], table);
  const auto* file = process.kernel.Find<heaptap_file>("files", kKeys[kLibrary]);
  EXPECT_EQ(process.kernel.map("rows").size(), unwind::CountNodes(count));
  EXPECT_EQ(file->levels, count <= 504 ? 1 : count <= 504 * 504 ? 2 : 3);
  uint64_t differences = 0;
  const auto check = [&](uint64_t offset) {
    differences += host_find_in_table(file, offset) != unwind::RuleAtOffset(table, offset);
  };
  for (const heaptap_row& row : table.rows) {
    for (const uint64_t at : {row.pc - 1, row.pc, row.pc + 1}) check(table.base + at);
  }
  for (const uint64_t offset : {uint64_t{0}, table.base - 1, table.base, table.base + (uint64_t{1} << 32),
                                table.base + 0xfffffffe, table.base + 0xffffffff, ~uint64_t{0}}) {
    check(offset);
  }
  EXPECT_EQ(differences, 0);
}

INSTANTIATE_TEST_SUITE_P(Rows, TreeTest,
                         ::testing::Values(1, 2, 255, 256, 257, 503, 504, 505, 1008, 1009, 504 * 504 - 1, 504 * 504,
                                           504 * 504 + 1, 300000));

TEST(SearchRows, EmptyNode) {
  heaptap_rows node;
  std::fill(std::begin(node.rows), std::end(node.rows), heaptap_row{~0u, 0});
  for (const uint32_t pc : {0u, 1u, ~0u - 1, ~0u}) EXPECT_EQ(search_rows(&node, pc), 0);
  EXPECT_EQ(search_rows(nullptr, 0), 0);
}

}  // namespace
}  // namespace heaptap::harness
