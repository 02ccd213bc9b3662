// SPDX-License-Identifier: Apache-2.0
//
// Tests the maps for unwinding on the real kernel.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/bpf_puppet.h"
#include "tests/unit/need_bpf.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/bpf/identify.h"
#include "userspace/bpf/kernel_books.h"
#include "userspace/bpf/unwind_maps.h"

namespace heaptap::bpf {
namespace {

using ::testing::IsEmpty;

class UnwindMapsTest : public ::testing::Test {
 protected:
  absl::Status Load() {
    MapSizes sizes;
    sizes.files = 4;
    sizes.unwind_bytes = 10 * 4096;
    absl::StatusOr<std::unique_ptr<Books>> books = KernelBooks::Load(sizes);
    if (!books.ok()) return books.status();
    books_ = *std::move(books);
    return absl::OkStatus();
  }

  UnwindMaps& maps() { return books_->unwind(); }

  std::unique_ptr<Books> books_;
};

std::vector<heaptap_rows> Nodes(size_t count) { return std::vector<heaptap_rows>(count); }

TEST_F(UnwindMapsTest, TablesGoInWholeOrNotAtAll) {
  NEED_BPF(Load());
  EXPECT_TRUE(maps().AddNodes(1, 0, Nodes(6)).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(maps().AddNodes(2, 0, Nodes(5))));
  EXPECT_TRUE(maps().AddNodes(3, 0, Nodes(4)).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(maps().AddNodes(4, 0, Nodes(1))));
  maps().RemoveTable(1, 6);
  EXPECT_TRUE(maps().AddNodes(5, 0, Nodes(6)).ok());
  maps().RemoveTable(3, 4);
  maps().RemoveTable(5, 6);
  EXPECT_TRUE(maps().AddNodes(6, 0, Nodes(10)).ok());
}

TEST_F(UnwindMapsTest, Files) {
  NEED_BPF(Load());
  const heaptap_file_key key = {7, 8, 9};
  EXPECT_EQ(maps().ReadFile(key), std::nullopt);
  heaptap_file file = {};
  file.state = HEAPTAP_FILE_LOADED;
  file.table = 3;
  file.base = 4096;
  file.last_used = 5;
  EXPECT_TRUE(maps().SetFile(key, file).ok());
  const std::optional<heaptap_file> read = maps().ReadFile(key);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(memcmp(&*read, &file, sizeof(file)), 0);
  for (uint32_t i = 0; i < 3; i++) EXPECT_TRUE(maps().SetFile({7, 8, i}, file).ok());
  EXPECT_FALSE(maps().SetFile({7, 8, 4}, file).ok());
  maps().RemoveFile(key);
  EXPECT_EQ(maps().ReadFile(key), std::nullopt);
  EXPECT_TRUE(maps().SetFile({7, 8, 4}, file).ok());
}

TEST_F(UnwindMapsTest, IdentifiesFiles) {
  NEED_BPF(Load());
  base::FileDescriptor program(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  const auto identify = [this](int fd) { return Identify(books_->program(Program::kIdentify), fd); };
  ASSERT_TRUE(identify(program.get()).ok()) << identify(program.get()).status();
  base::FileDescriptor memory(memfd_create("one", MFD_CLOEXEC));
  base::FileDescriptor other(memfd_create("two", MFD_CLOEXEC));
  for (const int fd : {memory.get(), other.get()}) EXPECT_EQ(ftruncate(fd, 1), 0);
  const absl::StatusOr<heaptap_identify> memory_found = identify(memory.get());
  const absl::StatusOr<heaptap_identify> other_found = identify(other.get());
  ASSERT_TRUE(memory_found.ok() && other_found.ok());
  EXPECT_NE(memory_found->inode_address, other_found->inode_address);
  const heaptap_file_key* const memory_key = &memory_found->file;
  const heaptap_file_key* const other_key = &other_found->file;
  struct stat status;
  ASSERT_EQ(fstat(memory.get(), &status), 0);
  EXPECT_EQ(memory_key->inode, status.st_ino);
  EXPECT_EQ(memory_key->device, major(status.st_dev) << 20 | minor(status.st_dev));
  EXPECT_NE(memory_key->inode, other_key->inode);
  EXPECT_EQ(memory_key->device, other_key->device);
  // Descriptors of what cannot be mapped.
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  EXPECT_TRUE(absl::IsNotFound(identify(ends[0]).status()));
  EXPECT_TRUE(absl::IsNotFound(identify(-1).status()));
  close(ends[0]);
  close(ends[1]);
}

TEST_F(UnwindMapsTest, EmptyRingBufferAndUnknownStack) {
  NEED_BPF(Load());
  pollfd ready = {.fd = maps().raw_stacks_fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&ready, 1, 0), 0);
  EXPECT_THAT(maps().TakeRawStacks(), IsEmpty());
  maps().ReplaceStack(77, heaptap_stack{});
  EXPECT_FALSE(books_->entries().ReadStack(77).ok());
}

// Endless means: processes add stacks faster than they are taken out of the ring.
TEST(RawStacksTest, AreTakenThoughTheRingFillsWithoutEnd) {
  constexpr uint32_t kRingBytes = 4 << 20;
  Recording recording;
  NEED_BPF(recording.Load({.raw_stacks_bytes = kRingBytes}));
  UnwindMaps& maps = recording.books->unwind();
  Puppet puppets[4];
  for (const Puppet& puppet : puppets) ASSERT_TRUE(recording.books->processes().Track(puppet.pid(), false, {}).ok());
  // There is no table, and there will be none.
  for (const heaptap_file_key& key : maps.FileKeys()) maps.RemoveFile(key);
  for (const Puppet& puppet : puppets) {
    puppet.Send({.kind = Order::kAlloc, .address = 0x1000, .size = 16, .weight = 16, .count = uint64_t{1} << 40});
  }
  pollfd ready = {.fd = maps.raw_stacks_fd(), .events = POLLIN, .revents = 0};
  for (int i = 0; i < 20; i++) {
    ASSERT_EQ(poll(&ready, 1, -1), 1);
    uint64_t bytes = 0;
    for (const RawStack& raw : maps.TakeRawStacks()) bytes += sizeof(raw.header) + raw.memory.size();
    EXPECT_GT(bytes, 0);
    // What the thread had taken, as much as the ring holds, and what came before the lock was free: a slow machine may
    // be late. Without the bound the call would not return.
    EXPECT_LT(bytes, 16 * kRingBytes);
  }
}

}  // namespace
}  // namespace heaptap::bpf
