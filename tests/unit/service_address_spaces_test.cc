// SPDX-License-Identifier: Apache-2.0
#include "gtest/gtest.h"
#include "userspace/service/address_spaces.h"

namespace heaptap::service {
namespace {

using bpf::MappingEvent;

MappingEvent Map(pid_t pid, uint64_t start, const std::string& path, uint64_t inode = 1) {
  MappingEvent event = {};
  event.kind = MappingEvent::kMap;
  event.pid = pid;
  event.mapping = {.start = start, .end = start + 0x1000, .inode = inode, .path = path};
  return event;
}

MappingEvent Of(MappingEvent::Kind kind, pid_t pid, pid_t parent = 0) {
  MappingEvent event = {};
  event.kind = kind;
  event.pid = pid;
  event.parent = parent;
  return event;
}

TEST(AddressSpaces, StrangersAreNotKept) {
  AddressSpaces spaces(AddressSpaces::Whose::kKeptAndChildren);
  EXPECT_FALSE(spaces.Apply(Map(1, 0x1000, "/a")));
  EXPECT_FALSE(spaces.Apply(Of(MappingEvent::kFork, 2, 1)));
  EXPECT_EQ(spaces.Find(1), nullptr);
  EXPECT_EQ(spaces.Find(2), nullptr);
}

TEST(AddressSpaces, TheFirstFileIsTheProgram) {
  AddressSpaces spaces(AddressSpaces::Whose::kKeptAndChildren);
  spaces.Keep(1, {});
  EXPECT_TRUE(spaces.Apply(Map(1, 0x9000, "[vdso]", 0)));
  EXPECT_TRUE(spaces.Apply(Map(1, 0x1000, "/program")));
  EXPECT_TRUE(spaces.Apply(Map(1, 0x3000, "/library")));
  ASSERT_NE(spaces.Find(1), nullptr);
  EXPECT_EQ(spaces.Find(1)->executable, "/program");
  EXPECT_EQ(spaces.Find(1)->mappings.size(), 3);
  EXPECT_EQ(spaces.Find(1)->mappings.Find(0x3fff)->path, "/library");
}

TEST(AddressSpaces, ALaterMappingTakesThePlace) {
  AddressSpaces spaces(AddressSpaces::Whose::kKeptAndChildren);
  spaces.Keep(1, {});
  spaces.Apply(Map(1, 0x1000, "/old"));
  spaces.Apply(Map(1, 0x1000, "/new"));
  EXPECT_EQ(spaces.Find(1)->mappings.Find(0x1000)->path, "/new");
}

TEST(AddressSpaces, ForkCopies) {
  AddressSpaces spaces(AddressSpaces::Whose::kKeptAndChildren);
  spaces.Keep(1, {});
  spaces.Apply(Map(1, 0x1000, "/program"));
  spaces.Apply(Of(MappingEvent::kFork, 2, 1));
  spaces.Apply(Map(1, 0x3000, "/parents"));
  spaces.Apply(Map(2, 0x5000, "/childs"));
  ASSERT_NE(spaces.Find(2), nullptr);
  EXPECT_EQ(spaces.Find(2)->executable, "/program");
  EXPECT_EQ(spaces.Find(2)->mappings.size(), 2);
  EXPECT_EQ(spaces.Find(2)->mappings.Find(0x3000), nullptr);
  EXPECT_EQ(spaces.Find(1)->mappings.Find(0x5000), nullptr);
}

TEST(AddressSpaces, WithoutFollowChildrenAreNotKept) {
  AddressSpaces spaces(AddressSpaces::Whose::kKept);
  spaces.Keep(1, {});
  spaces.Apply(Of(MappingEvent::kFork, 2, 1));
  EXPECT_EQ(spaces.Find(2), nullptr);
}

TEST(AddressSpaces, ExecEmpties) {
  AddressSpaces spaces(AddressSpaces::Whose::kKeptAndChildren);
  spaces.Keep(1, {});
  spaces.Apply(Map(1, 0x1000, "/program"));
  EXPECT_FALSE(spaces.Apply(Of(MappingEvent::kExec, 1)));
  ASSERT_NE(spaces.Find(1), nullptr);
  EXPECT_TRUE(spaces.Find(1)->mappings.empty());
  spaces.Apply(Map(1, 0x1000, "/next"));
  EXPECT_EQ(spaces.Find(1)->executable, "/next");
}

// The end of a process can be missed.
TEST(AddressSpaces, APidThatIsUsedAgainIsANewProcess) {
  AddressSpaces spaces(AddressSpaces::Whose::kKeptAndChildren);
  spaces.Keep(1, {});
  spaces.Apply(Map(1, 0x1000, "/program"));
  spaces.Apply(Of(MappingEvent::kFork, 2, 1));
  spaces.Apply(Map(2, 0x5000, "/of-the-dead"));
  spaces.Apply(Map(1, 0x3000, "/library"));
  spaces.Apply(Of(MappingEvent::kFork, 2, 1));
  EXPECT_EQ(spaces.Find(2)->mappings.Find(0x5000), nullptr);
  ASSERT_NE(spaces.Find(2)->mappings.Find(0x3000), nullptr);
}

TEST(AddressSpaces, DropForgets) {
  AddressSpaces spaces(AddressSpaces::Whose::kKeptAndChildren);
  spaces.Keep(1, {});
  spaces.Drop(1);
  spaces.Drop(1);
  EXPECT_EQ(spaces.Find(1), nullptr);
}

}  // namespace
}  // namespace heaptap::service
