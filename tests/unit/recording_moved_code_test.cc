// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "gtest/gtest.h"
#include "tests/unit/support/folder.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/recording/moved_code.h"

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
  // Of anonymous memory in the place of the code; as if it were in the next batch.
  bpf::MappingEvent Event() {
    moved_.BeginBatch();
    return {.kind = bpf::MappingEvent::kMap,
            .time = time_++,
            .pid = getpid(),
            .mapping = {.start = code_.start, .end = code_.end, .path = "//anon"}};
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_ / "code";
  char* all_ = nullptr;
  elf::Mapping code_;
  uint64_t time_ = kTime;
  worker::Hands hands_;
  AddressSpaces spaces_{AddressSpaces::Scope::kKept};
  MovedCode moved_{hands_, spaces_};
};

TEST_F(MovedCodeOfTargets, IsOfItsFile) {
  Copy();
  bpf::MappingEvent event = Event();
  EXPECT_TRUE(moved_.Name(event));
  EXPECT_EQ(event.mapping.path, path_);
  EXPECT_EQ(event.mapping.file_offset, kPage);
}

// The memory is executable before the code is in it, and the program takes away the right to write then.
TEST_F(MovedCodeOfTargets, MayBeCopiedLater) {
  bpf::MappingEvent event = Event();
  EXPECT_FALSE(moved_.Name(event));
  EXPECT_EQ(event.mapping.path, "//anon");
  EXPECT_TRUE(spaces_.Apply(event));
  Copy();
  event = Event();
  EXPECT_TRUE(moved_.Name(event));
  EXPECT_EQ(event.mapping.path, path_);
}

TEST_F(MovedCodeOfTargets, OtherMappingsAreNotLookedAt) {
  Copy();
  bpf::MappingEvent elsewhere = Event();
  elsewhere.mapping.start += 1 << 20;
  elsewhere.mapping.end += 1 << 20;
  EXPECT_FALSE(moved_.Name(elsewhere));
  bpf::MappingEvent unknown = Event();
  unknown.pid = 1;
  EXPECT_FALSE(moved_.Name(unknown));
}

TEST_F(MovedCodeOfTargets, AProcessIsNotLookedAtForever) {
  for (int i = 0; i < 100; i++) {
    bpf::MappingEvent event = Event();
    EXPECT_FALSE(moved_.Name(event));
  }
  Copy();
  bpf::MappingEvent event = Event();
  EXPECT_FALSE(moved_.Name(event));
}

}  // namespace
}  // namespace heaptap::recording
