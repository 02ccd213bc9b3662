// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "tests/unit/support/folder.h"
#include "userspace/base/clock.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/spaces/moved_code.h"

namespace heaptap::recording {
namespace {

constexpr size_t kPage = 4096;
constexpr uint64_t kTime = 100;

// This process has mapped a file of three pages; the second is its code.
class MovedCodeOfTargets : public ::testing::Test {
 protected:
  MovedCodeOfTargets() {
    WriteFile(path_, std::string(3 * kPage, 'x'));
    const base::FileDescriptor file(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    all_ = static_cast<char*>(mmap(nullptr, 3 * kPage, PROT_READ, MAP_PRIVATE, file.get(), 0));
    const auto start = reinterpret_cast<uint64_t>(all_) + kPage;
    code_ = {.start = start, .end = start + kPage, .file_offset = kPage, .inode = 1, .path = path_};
    AddressSpace space;
    space.mappings.Add(code_);
    spaces_.Keep(getpid(), space);
    EXPECT_EQ(
        mmap(all_ + kPage, kPage, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
        all_ + kPage);
  }
  ~MovedCodeOfTargets() override { munmap(all_, 3 * kPage); }

  void Copy() { memset(all_ + kPage, 'x', kPage); }
  // Of anonymous memory in the place of the code.
  bpf::MappingEvent Event() {
    return {.kind = bpf::MappingEvent::kMap,
            .time = time_++,
            .pid = getpid(),
            .mapping = {.start = code_.start, .end = code_.end, .path = "//anon"}};
  }
  // The mapping after the event, as if that were in the next batch.
  elf::Mapping After(MovedCode& moved, const bpf::MappingEvent& event) {
    moved.BeginBatch();
    EXPECT_TRUE(moved.Apply(event));
    return Now(event);
  }
  elf::Mapping Now(const bpf::MappingEvent& event) const {
    const elf::Mapping* const mapping = spaces_.Find(event.pid)->mappings.Find(event.mapping.start);
    return mapping == nullptr ? elf::Mapping() : *mapping;
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_ / "code";
  char* all_ = nullptr;
  elf::Mapping code_;
  uint64_t time_ = kTime;
  worker::Looks orders_{-1, {}, {.patience = absl::Minutes(1)}, 1, worker::Looks::Place::kCaller};
  AddressSpaces spaces_{AddressSpaces::Scope::kKept};
  MovedCode moved_{orders_, spaces_};
};

TEST_F(MovedCodeOfTargets, IsOfItsFile) {
  Copy();
  const elf::Mapping mapping = After(moved_, Event());
  EXPECT_EQ(mapping.path, path_);
  EXPECT_EQ(mapping.file_offset, kPage);
}

// The memory is executable before the code is in it, and the program takes away the right to write then.
TEST_F(MovedCodeOfTargets, MayBeCopiedLater) {
  EXPECT_EQ(After(moved_, Event()).path, "//anon");
  Copy();
  EXPECT_EQ(After(moved_, Event()).path, path_);
}

TEST_F(MovedCodeOfTargets, OtherMappingsAreNotLookedAt) {
  Copy();
  bpf::MappingEvent elsewhere = Event();
  elsewhere.mapping.start += 1 << 20;
  elsewhere.mapping.end += 1 << 20;
  EXPECT_EQ(After(moved_, elsewhere).path, "//anon");
  bpf::MappingEvent unknown = Event();
  unknown.pid = 1;
  EXPECT_FALSE(moved_.Apply(unknown));
}

TEST_F(MovedCodeOfTargets, AProcessIsNotLookedAtForever) {
  for (int i = 0; i < 100; i++) EXPECT_EQ(After(moved_, Event()).path, "//anon");
  Copy();
  EXPECT_EQ(After(moved_, Event()).path, "//anon");
}

// Hands look in another thread.
class MovedCodeLater : public MovedCodeOfTargets {
 protected:
  // Hands look at nothing until LetLook. Root may have two looks at a time.
  void Stall() {
    for (int i = 0; i < 2; i++) {
      threads_.Start(
          getpid(), [this](worker::Hands&, int) { may_look_.WaitForNotification(); }, [] {});
    }
  }
  void LetLook() { may_look_.Notify(); }
  void Await() {
    EXPECT_TRUE(threads_.WaitUntil([this] { return !later_.IsLooking(getpid()); }, base::Now() + absl::Minutes(1)));
  }
  ~MovedCodeLater() override {
    if (!may_look_.HasBeenNotified()) LetLook();
  }

  absl::Notification may_look_;
  worker::Looks threads_{-1, {}, {.patience = absl::Minutes(1)}};
  MovedCode later_{threads_, spaces_};
};

TEST_F(MovedCodeLater, IsAnonymousUntilTheLook) {
  Copy();
  Stall();
  const bpf::MappingEvent event = Event();
  EXPECT_EQ(After(later_, event).path, "//anon");
  EXPECT_TRUE(later_.IsLooking(getpid()));
  // Of the same batch.
  EXPECT_TRUE(later_.Apply(Event()));
  LetLook();
  Await();
  EXPECT_EQ(Now(event).path, path_);
  EXPECT_EQ(Now(event).file_offset, kPage);
}

TEST_F(MovedCodeLater, WhatIsMappedThereMeanwhileStays) {
  Copy();
  Stall();
  const bpf::MappingEvent event = Event();
  EXPECT_EQ(After(later_, event).path, "//anon");
  bpf::MappingEvent other = Event();
  other.mapping.inode = 2;
  other.mapping.path = "/other";
  EXPECT_EQ(After(later_, other).path, "/other");
  LetLook();
  Await();
  EXPECT_EQ(Now(event).path, "/other");
}

}  // namespace
}  // namespace heaptap::recording
