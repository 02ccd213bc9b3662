// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <memory>

#include "gtest/gtest.h"
#include "userspace/process/handle.h"
#include "userspace/process/pending_frees.h"

namespace heaptap::process {
namespace {

class PendingFrees : public ::testing::Test {
 protected:
  absl::StatusOr<std::vector<heaptap_free>> Read() {
    const absl::StatusOr<Handle> self = Handle::Open(getpid());
    if (!self.ok()) return self.status();
    return ReadPendingFrees(*self, reinterpret_cast<uint64_t>(pending_.get()));
  }
  std::unique_ptr<heaptap_pending> pending_ = std::make_unique<heaptap_pending>();
};

TEST_F(PendingFrees, OfUsedSlots) {
  pending_->used = 3;
  pending_->slots[0] = {.count = 1, .reserved = 0, .weight = 0, .frees = {{0x10, 1}}};
  pending_->slots[2] = {.count = 2, .reserved = 0, .weight = 0, .frees = {{0x20, 2}, {0x30, 3}}};
  pending_->slots[3] = {.count = 1, .reserved = 0, .weight = 0, .frees = {{0x40, 4}}};
  const absl::StatusOr<std::vector<heaptap_free>> frees = Read();
  ASSERT_TRUE(frees.ok()) << frees.status();
  ASSERT_EQ(frees->size(), 3u);
  EXPECT_EQ((*frees)[0].serial, 1u);
  EXPECT_EQ((*frees)[2].address, 0x30u);
}

TEST_F(PendingFrees, NoMoreThanThereIsRoomFor) {
  pending_->used = ~uint64_t{0};
  for (heaptap_slot& slot : pending_->slots) slot.count = ~uint32_t{0};
  const absl::StatusOr<std::vector<heaptap_free>> frees = Read();
  ASSERT_TRUE(frees.ok()) << frees.status();
  EXPECT_EQ(frees->size(), size_t{HEAPTAP_SLOTS} * HEAPTAP_SLOT_FREES);
}

TEST_F(PendingFrees, WhereThereIsNoMemory) {
  const absl::StatusOr<Handle> self = Handle::Open(getpid());
  ASSERT_TRUE(self.ok());
  EXPECT_FALSE(ReadPendingFrees(*self, 8).ok());
  EXPECT_FALSE(ReadPendingFrees(*self, ~uint64_t{0} - 8).ok());
}

}  // namespace
}  // namespace heaptap::process
