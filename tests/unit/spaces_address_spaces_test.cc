// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/base/bounds.h"
#include "userspace/base/clock.h"
#include "userspace/spaces/address_spaces.h"

namespace heaptap::recording {
namespace {

using bpf::MappingEvent;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

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
  AddressSpaces spaces(AddressSpaces::Scope::kKeptAndChildren);
  EXPECT_FALSE(spaces.Apply(Map(1, 0x1000, "/a")));
  EXPECT_FALSE(spaces.Apply(Of(MappingEvent::kFork, 2, 1)));
  EXPECT_EQ(spaces.Find(1), nullptr);
  EXPECT_EQ(spaces.Find(2), nullptr);
}

TEST(AddressSpaces, TheFirstFileIsTheProgram) {
  AddressSpaces spaces(AddressSpaces::Scope::kKeptAndChildren);
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
  AddressSpaces spaces(AddressSpaces::Scope::kKeptAndChildren);
  spaces.Keep(1, {});
  spaces.Apply(Map(1, 0x1000, "/old"));
  spaces.Apply(Map(1, 0x1000, "/new"));
  EXPECT_EQ(spaces.Find(1)->mappings.Find(0x1000)->path, "/new");
}

// What was unmapped meanwhile stays, and what another file has replaced was there up to the time that is known.
TEST(AddressSpaces, MappingsAreReadAgain) {
  const uint64_t known = base::Now().nanoseconds();
  AddressSpaces spaces(AddressSpaces::Scope::kKeptAndChildren);
  spaces.Keep(1, {});
  for (const uint64_t start : {0x1000, 0x3000, 0x5000}) spaces.Apply(Map(1, start, absl::StrCat("/", start), start));
  AddressSpace read = {.mappings = {}, .executable = "/program"};
  read.mappings.Add(Map(1, 0x3000, "/same", 0x3000).mapping);
  read.mappings.Add(Map(1, 0x5000, "/new", 2).mapping);
  spaces.Update(1, read, known);
  const elf::Mappings& mappings = spaces.Find(1)->mappings;
  EXPECT_EQ(spaces.Find(1)->executable, "/program");
  EXPECT_EQ(mappings.Find(0x1000)->path, absl::StrCat("/", 0x1000));
  EXPECT_EQ(mappings.Find(0x3000)->path, "/same");
  EXPECT_EQ(mappings.Find(0x5000)->path, "/new");
  EXPECT_EQ(mappings.Find(mappings.Place(0x5010, known - 1))->path, absl::StrCat("/", 0x5000));
  EXPECT_EQ(mappings.Find(mappings.Place(0x5010, known)), nullptr);
  EXPECT_EQ(mappings.Place(0x5010, base::Now().nanoseconds()), 0x5010u);
  EXPECT_EQ(mappings.Place(0x3010, known), 0x3010u);
  spaces.Update(2, read, known);
  EXPECT_EQ(spaces.Find(2)->mappings.size(), 2u);
  EXPECT_TRUE(spaces.IsHeld(2));
}

TEST(AddressSpaces, BuildIdOfTheFileThatWasMappedThen) {
  AddressSpaces spaces(AddressSpaces::Scope::kKeptAndChildren);
  spaces.Keep(1, {});
  const MappingEvent old = Map(1, 0x1000, "/a");
  spaces.Apply(old);
  const std::shared_ptr<const AddressSpace> before = spaces.Share(1);
  spaces.SetBuildId(1, old.mapping, "old");
  spaces.SetBuildId(1, old.mapping, "new");
  spaces.SetBuildId(2, old.mapping, "new");
  EXPECT_EQ(spaces.Find(1)->mappings.Find(0x1000)->build_id, "old");
  EXPECT_EQ(before->mappings.Find(0x1000)->build_id, "") << "shared ones do not change";
  spaces.Apply(Map(1, 0x1000, "/a", 2));
  EXPECT_EQ(spaces.Find(1)->mappings.Find(0x1000)->build_id, "");
  spaces.SetBuildId(1, old.mapping, "old");
  EXPECT_EQ(spaces.Find(1)->mappings.Find(0x1000)->build_id, "") << "another file lies there by now";
}

TEST(AddressSpaces, ForkCopies) {
  AddressSpaces spaces(AddressSpaces::Scope::kKeptAndChildren);
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
  AddressSpaces spaces(AddressSpaces::Scope::kKept);
  spaces.Keep(1, {});
  spaces.Apply(Of(MappingEvent::kFork, 2, 1));
  EXPECT_EQ(spaces.Find(2), nullptr);
}

TEST(AddressSpaces, ExecEmpties) {
  AddressSpaces spaces(AddressSpaces::Scope::kKeptAndChildren);
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
  AddressSpaces spaces(AddressSpaces::Scope::kKeptAndChildren);
  spaces.Keep(1, {});
  spaces.Apply(Map(1, 0x1000, "/program"));
  spaces.Apply(Of(MappingEvent::kFork, 2, 1));
  spaces.Apply(Map(2, 0x5000, "/of-the-dead"));
  spaces.Apply(Map(1, 0x3000, "/library"));
  spaces.Apply(Of(MappingEvent::kFork, 2, 1));
  EXPECT_EQ(spaces.Find(2)->mappings.Find(0x5000), nullptr);
  ASSERT_NE(spaces.Find(2)->mappings.Find(0x3000), nullptr);
}

TEST(AddressSpaces, ThoseWhoseEndWasNotHeardOf) {
  // No process can have this PID.
  constexpr pid_t kGone = 1 << 22;
  AddressSpaces spaces(AddressSpaces::Scope::kSystemWide);
  bpf::MappingEvent exec = {};
  exec.kind = bpf::MappingEvent::kExec;
  for (const pid_t pid : {getpid(), kGone, kGone + 1}) {
    exec.pid = pid;
    spaces.Apply(exec);
  }
  EXPECT_TRUE(spaces.Hold(kGone + 1));
  spaces.DropEnded();
  EXPECT_NE(spaces.Find(getpid()), nullptr);
  EXPECT_EQ(spaces.Find(kGone), nullptr);
  EXPECT_NE(spaces.Find(kGone + 1), nullptr);
}

TEST(AddressSpaces, DropForgets) {
  AddressSpaces spaces(AddressSpaces::Scope::kKeptAndChildren);
  spaces.Keep(1, {});
  spaces.Drop(1);
  spaces.Drop(1);
  EXPECT_EQ(spaces.Find(1), nullptr);
}

TEST(AddressSpaces, SystemWideAllThatBeganSinceIsKept) {
  AddressSpaces spaces(AddressSpaces::Scope::kSystemWide);
  EXPECT_FALSE(spaces.Apply(Map(1, 0x1000, "/older")));
  EXPECT_FALSE(spaces.Apply(Of(MappingEvent::kFork, 2, 1)));
  EXPECT_EQ(spaces.Find(1), nullptr) << "it was there before";
  EXPECT_EQ(spaces.Find(2), nullptr) << "its earlier mappings are unknown";
  EXPECT_FALSE(spaces.Apply(Of(MappingEvent::kExec, 2)));
  EXPECT_TRUE(spaces.Apply(Map(2, 0x1000, "/program")));
  ASSERT_NE(spaces.Find(2), nullptr);
  EXPECT_EQ(spaces.Find(2)->executable, "/program");
  EXPECT_FALSE(spaces.IsHeld(2));
}

TEST(AddressSpaces, SystemWideChildrenShareUntilOneChanges) {
  AddressSpaces spaces(AddressSpaces::Scope::kSystemWide);
  spaces.Apply(Of(MappingEvent::kExec, 1));
  spaces.Apply(Map(1, 0x1000, "/program"));
  spaces.Apply(Of(MappingEvent::kFork, 2, 1));
  spaces.Apply(Of(MappingEvent::kFork, 3, 2));
  ASSERT_NE(spaces.Find(1), nullptr);
  EXPECT_EQ(spaces.Find(2), spaces.Find(1)) << "one and the same";
  EXPECT_EQ(spaces.Find(3), spaces.Find(1));
  spaces.Apply(Map(2, 0x3000, "/childs"));
  EXPECT_NE(spaces.Find(2), spaces.Find(1));
  EXPECT_EQ(spaces.Find(3), spaces.Find(1));
  EXPECT_EQ(spaces.Find(1)->mappings.Find(0x3000), nullptr);
  EXPECT_NE(spaces.Find(2)->mappings.Find(0x3000), nullptr);
  EXPECT_NE(spaces.Find(2)->mappings.Find(0x1000), nullptr);
  EXPECT_EQ(spaces.Find(2)->executable, "/program");
  // An exec empties one of those who share.
  spaces.Apply(Of(MappingEvent::kExec, 3));
  EXPECT_TRUE(spaces.Find(3)->mappings.empty());
  EXPECT_FALSE(spaces.Find(1)->mappings.empty());
}

TEST(AddressSpaces, TheEndDropsOnlyWhoIsNotHeld) {
  AddressSpaces spaces(AddressSpaces::Scope::kSystemWide);
  for (const pid_t pid : {1, 2, 3}) {
    spaces.Apply(Of(MappingEvent::kExec, pid));
    spaces.Apply(Map(pid, 0x1000, "/program"));
  }
  EXPECT_TRUE(spaces.Hold(2));
  EXPECT_TRUE(spaces.IsHeld(2));
  EXPECT_FALSE(spaces.Hold(9));
  EXPECT_FALSE(spaces.IsHeld(9));
  for (const pid_t pid : {1, 2, 9}) EXPECT_FALSE(spaces.Apply(Of(MappingEvent::kEnd, pid)));
  EXPECT_EQ(spaces.Find(1), nullptr);
  ASSERT_NE(spaces.Find(2), nullptr);
  EXPECT_EQ(spaces.Find(2)->executable, "/program");
  EXPECT_NE(spaces.Find(3), nullptr);
  spaces.Drop(2);
  EXPECT_EQ(spaces.Find(2), nullptr);
  // What was kept by name is still found.
  spaces.Keep(4, {});
  spaces.Apply(Of(MappingEvent::kEnd, 4));
  EXPECT_NE(spaces.Find(4), nullptr);
}

TEST(AddressSpaces, ASetUserIdProgramBeginsWithAnEnd) {
  AddressSpaces spaces(AddressSpaces::Scope::kSystemWide);
  spaces.Apply(Of(MappingEvent::kExec, 1));
  spaces.Apply(Of(MappingEvent::kEnd, 1));
  EXPECT_TRUE(spaces.Apply(Map(1, 0x1000, "/program")));
  EXPECT_NE(spaces.Find(1), nullptr);
  spaces.Apply(Of(MappingEvent::kEnd, 1));
  EXPECT_EQ(spaces.Find(1), nullptr);
}

TEST(AddressSpaces, ChildrenOfWhoIsHeldAreNot) {
  AddressSpaces spaces(AddressSpaces::Scope::kSystemWide);
  spaces.Apply(Of(MappingEvent::kExec, 1));
  spaces.Hold(1);
  spaces.Apply(Of(MappingEvent::kFork, 2, 1));
  spaces.Apply(Of(MappingEvent::kEnd, 2));
  EXPECT_EQ(spaces.Find(2), nullptr);
  EXPECT_NE(spaces.Find(1), nullptr);
}

TEST(AddressSpaces, ChildrenThatAreKeptAreHeld) {
  AddressSpaces spaces(AddressSpaces::Scope::kKeptAndChildren);
  spaces.Keep(1, {});
  spaces.Apply(Of(MappingEvent::kFork, 2, 1));
  EXPECT_TRUE(spaces.IsHeld(2));
  spaces.Apply(Of(MappingEvent::kEnd, 2));
  EXPECT_NE(spaces.Find(2), nullptr);
  EXPECT_FALSE(spaces.Apply(Of(MappingEvent::kExec, 3)));
  EXPECT_EQ(spaces.Find(3), nullptr) << "an unknown process";
}

TEST(AddressSpaces, WhatIsTakenStaysAsItWas) {
  AddressSpaces spaces(AddressSpaces::Scope::kSystemWide);
  spaces.Apply(Of(MappingEvent::kExec, 1));
  spaces.Apply(Map(1, 0x1000, "/program"));
  spaces.Apply(Of(MappingEvent::kFork, 2, 1));
  EXPECT_EQ(spaces.Take(9), nullptr);
  const std::shared_ptr<const AddressSpace> taken = spaces.Take(1);
  ASSERT_NE(taken, nullptr);
  EXPECT_EQ(spaces.Find(1), nullptr);
  EXPECT_EQ(spaces.Take(1), nullptr);
  spaces.Apply(Map(2, 0x3000, "/childs"));
  EXPECT_EQ(taken->mappings.size(), 1u);
  EXPECT_EQ(taken->executable, "/program");
}

TEST(AddressSpaces, WhoMappedAFile) {
  AddressSpaces spaces(AddressSpaces::Scope::kSystemWide);
  for (const pid_t pid : {1, 2, 3}) spaces.Apply(Of(MappingEvent::kExec, pid));
  spaces.Apply(Map(1, 0x1000, "/library", 77));
  spaces.Apply(Map(1, 0x3000, "/library", 77));
  spaces.Apply(Map(2, 0x1000, "/elsewhere/the-same", 77));
  spaces.Apply(Map(3, 0x1000, "/library", 78));
  spaces.Apply(Of(MappingEvent::kFork, 4, 2));
  EXPECT_THAT(spaces.ProcessesMapping({.inode = 77}), UnorderedElementsAre(1, 2, 4));
  EXPECT_THAT(spaces.ProcessesMapping({.inode = 78, .path = "/whatever"}), UnorderedElementsAre(3));
  EXPECT_THAT(spaces.ProcessesMapping({.device_minor = 1, .inode = 77}), IsEmpty()) << "another device's";
}

TEST(AddressSpaces, ThoseThatAreNotHeldHaveABound) {
  AddressSpaces spaces(AddressSpaces::Scope::kSystemWide);
  constexpr pid_t kSmall = 1, kHeld = 2, kGreedy = 3;
  for (const pid_t pid : {kSmall, kHeld, kGreedy}) {
    spaces.Apply(Of(MappingEvent::kExec, pid));
    spaces.Apply(Map(pid, 0x1000, "/program"));
  }
  spaces.Hold(kHeld);
  constexpr uint64_t kMany = 8000;
  for (uint64_t i = 0; i < kMany; i++) {
    const uint64_t start = 0x10000 + i * 0x2000;
    spaces.Apply(Map(kGreedy, start, "/many"));
    spaces.Apply(Map(kHeld, start, "/many"));
  }
  // Each child shares its parent's mappings until it has one of its own.
  constexpr pid_t kChildren = 200;
  for (pid_t child = 100; child < 100 + kChildren; child++) {
    spaces.Apply(Of(MappingEvent::kFork, child, kGreedy));
    spaces.Apply(Map(child, 0x8000, "/one-more"));
    ASSERT_LT(spaces.CountFreeMappings(), AddressSpaces::kMaxFreeMappings * 5 / 4) << child;
  }
  EXPECT_NE(spaces.Find(kSmall), nullptr);
  EXPECT_EQ(spaces.Find(kHeld)->mappings.size(), kMany + 1);
}

TEST(AddressSpaces, ThoseOfOneUserHaveABound) {
  AddressSpaces spaces(AddressSpaces::Scope::kSystemWide);
  constexpr pid_t kSmall = 1, kOther = 2, kFirst = 100, kLast = 150;
  constexpr uid_t kGreedyUser = 1234, kOtherUser = 1235;
  const auto begin = [&](pid_t pid, uid_t user, uint64_t mappings) {
    spaces.Apply(Of(MappingEvent::kExec, pid));
    spaces.Hold(pid);
    spaces.SetUser(pid, user);
    for (uint64_t i = 0; i < mappings; i++) spaces.Apply(Map(pid, 0x10000 + i * 0x2000, "/many"));
  };
  constexpr uint64_t kMany = 8000;
  begin(kSmall, kGreedyUser, 1);
  begin(kOther, kOtherUser, kMany);
  const uint64_t before = base::CountsBeyondBounds().at("mappings");
  for (pid_t pid = kFirst; pid <= kLast; pid++) begin(pid, kGreedyUser, kMany);
  uint64_t forgotten = 0;
  for (pid_t pid = kFirst; pid <= kLast; pid++) forgotten += spaces.Find(pid) == nullptr ? 1 : 0;
  EXPECT_GT(forgotten, kLast - kFirst - AddressSpaces::kMaxMappingsOfUser * 5 / 4 / kMany);
  EXPECT_EQ(base::CountsBeyondBounds().at("mappings"), before + forgotten);
  EXPECT_NE(spaces.Find(kSmall), nullptr);
  EXPECT_EQ(spaces.Find(kOther)->mappings.size(), kMany);
}

}  // namespace
}  // namespace heaptap::recording
