// SPDX-License-Identifier: Apache-2.0
//
// Tests what becomes of the unwind tables of an earlier collector, on the real kernel.
#include <unistd.h>

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/need_bpf.h"
#include "tests/unit/unwind_tables_fixture.h"
#include "userspace/base/clock.h"

namespace heaptap::recording {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST_F(UnwindTablesTest, TablesOfAnEarlierCollectorServeUntilTheFileIsRead) {
  NEED_BPF(Load());
  MappedImage image(Small(2));
  MappedImage twin(Small(2));
  MappedImage text("text");
  for (const MappedImage* one : {&image, &twin, &text}) Enter(*one);
  const uint32_t before = TableOf(image);
  EXPECT_EQ(TableOf(twin), before);
  Restart();
  EXPECT_EQ(tables_->kernel().bytes(), kNode);
  tables_->Enter(KeyOf(image), getpid(), image.mapping);
  // It is being read.
  EXPECT_EQ(StateOf(image), HEAPTAP_FILE_LOADED);
  EXPECT_EQ(TableOf(image), before);
  Settle();
  EXPECT_EQ(StateOf(image), HEAPTAP_FILE_LOADED);
  EXPECT_GT(TableOf(image), before);
  EXPECT_EQ(FindRule(image, kCode), Words(2));
  EXPECT_EQ(tables_->kernel().bytes(), 2 * kNode);
  EXPECT_EQ(TableOf(twin), before);
  Enter(twin);
  EXPECT_EQ(TableOf(twin), TableOf(image));
  EXPECT_THAT(maps().CountNodes(), ElementsAre(Pair(TableOf(image), 1)));
  EXPECT_EQ(StateOf(text), HEAPTAP_FILE_WITHOUT_TABLE);
}

TEST_F(UnwindTablesTest, TablesOfAnEarlierCollectorGoAfterAWhile) {
  NEED_BPF(Load());
  MappedImage image(Small(2));
  MappedImage other(Small(3));
  Enter(image);
  Enter(other);
  Restart();
  Enter(other);
  tables_->kernel().Balance(base::Instant() + absl::Seconds(1000));
  tables_->kernel().Balance(base::Instant() + absl::Seconds(1009));
  EXPECT_EQ(StateOf(image), HEAPTAP_FILE_LOADED);
  tables_->kernel().Balance(base::Instant() + absl::Seconds(1010));
  EXPECT_EQ(StateOf(image), -1);
  EXPECT_EQ(StateOf(other), HEAPTAP_FILE_LOADED);
  EXPECT_THAT(maps().CountNodes(), ElementsAre(Pair(TableOf(other), 1)));
  EXPECT_EQ(tables_->kernel().bytes(), kNode);
}

TEST_F(UnwindTablesTest, TablesOfAnEarlierCollectorMakeRoom) {
  NEED_BPF(Load(4));
  MappedImage image(Small(2));
  MappedImage large(Image(600, 3));  // three nodes
  Enter(image);
  Enter(large);
  Restart(4);
  EXPECT_EQ(tables_->kernel().bytes(), 4 * kNode);
  Enter(image);
  EXPECT_EQ(StateOf(image), HEAPTAP_FILE_LOADED);
  EXPECT_EQ(StateOf(large), -1);
  EXPECT_THAT(maps().CountNodes(), ElementsAre(Pair(TableOf(image), 1)));
  Enter(large);
  EXPECT_EQ(StateOf(large), HEAPTAP_FILE_LOADED);
  EXPECT_EQ(tables_->kernel().bytes(), 4 * kNode);
}

// A collector that was killed while it loaded or unloaded a table.
TEST_F(UnwindTablesTest, HalfATableOfAnEarlierCollectorGoesAtOnce) {
  NEED_BPF(Load());
  const uint32_t half = maps().NewTable();
  EXPECT_TRUE(maps().AddNodes(half, 0, std::vector<heaptap_rows>(3)).ok());
  maps().RemoveTable(half, 2);
  EXPECT_THAT(maps().CountNodes(), ElementsAre(Pair(half, 3)));
  MappedImage image(Small(2));
  heaptap_file wanted = {};
  wanted.state = HEAPTAP_FILE_WANTED;
  EXPECT_TRUE(maps().SetFile(KeyOf(image), wanted).ok());
  Restart();
  EXPECT_THAT(maps().CountNodes(), IsEmpty());
  EXPECT_EQ(StateOf(image), -1);
  Enter(image);
  EXPECT_EQ(TableOf(image), half + 1) << "a cached row of the earlier table may still be there";
}

}  // namespace
}  // namespace heaptap::recording
