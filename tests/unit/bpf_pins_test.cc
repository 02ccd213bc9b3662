// SPDX-License-Identifier: Apache-2.0
#include <bpf/bpf.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/need_bpf.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/folder.h"
#include "userspace/bpf/pins.h"

namespace heaptap::bpf {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PinsTest : public testing::Test {
 protected:
  ~PinsTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(base_, ignored);
  }

  // Opens pins in the folder of this test.
  absl::StatusOr<Pins> Open(absl::string_view layout) const { return Pins::Open(base_, layout); }

  static base::FileDescriptor MakeMap(uint32_t entries) {
    return base::FileDescriptor(
        bpf_map_create(BPF_MAP_TYPE_ARRAY, "pins_test", sizeof(uint32_t), sizeof(uint64_t), entries, nullptr));
  }
  static uint32_t EntriesOf(int fd) {
    bpf_map_info info = {};
    uint32_t length = sizeof(info);
    EXPECT_EQ(bpf_obj_get_info_by_fd(fd, &info, &length), 0);
    return info.max_entries;
  }

  const std::string base_ = absl::StrCat("/sys/fs/bpf/heaptap-pins-test-", getpid());
};

TEST_F(PinsTest, WhatIsPinnedOutlivesWhoPinnedIt) {
  {
    absl::StatusOr<Pins> pins = Open("layout1");
    NEED_BPF(pins.status());
    EXPECT_EQ(pins->layout(), "layout1");
    EXPECT_EQ(pins->folder(), base_ + "/layout1");
    EXPECT_THAT(pins->Names(), IsEmpty());
    EXPECT_FALSE(pins->Has("map_b"));
    EXPECT_TRUE(absl::IsNotFound(pins->Get("map_b").status()));
    ASSERT_TRUE(pins->Pin(MakeMap(3).get(), "map_b").ok());
    ASSERT_TRUE(pins->Pin(MakeMap(4).get(), "map_a").ok());
  }
  absl::StatusOr<Pins> pins = Open("layout1");
  ASSERT_TRUE(pins.ok()) << pins.status();
  EXPECT_THAT(pins->Names(), ElementsAre("map_a", "map_b"));
  EXPECT_TRUE(pins->Has("map_b"));
  absl::StatusOr<base::FileDescriptor> map = pins->Get("map_b");
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(EntriesOf(map->get()), 3u);
}

TEST_F(PinsTest, ANameIsTakenUntilItIsRemoved) {
  absl::StatusOr<Pins> pins = Open("layout1");
  NEED_BPF(pins.status());
  ASSERT_TRUE(pins->Pin(MakeMap(3).get(), "map").ok());
  const absl::Status again = pins->Pin(MakeMap(4).get(), "map");
  EXPECT_FALSE(again.ok());
  EXPECT_THAT(std::string(again.message()), HasSubstr(base_ + "/layout1/map"));
  EXPECT_EQ(EntriesOf(pins->Get("map")->get()), 3u);
  pins->Remove("map");
  pins->Remove("map");
  EXPECT_FALSE(pins->Has("map"));
  EXPECT_TRUE(pins->Pin(MakeMap(4).get(), "map").ok());
  EXPECT_EQ(EntriesOf(pins->Get("map")->get()), 4u);
  EXPECT_FALSE(pins->Pin(-1, "nothing").ok());
  EXPECT_FALSE(pins->Has("nothing"));
}

// A process that it was starting may have it for a moment.
TEST_F(PinsTest, WaitsForTheLockOfAKilledCollector) {
  FakeClock clock;
  std::optional<absl::StatusOr<Pins>> first = Open("layout1");
  NEED_BPF(first->status());
  bool is_open = false;
  std::thread second([&] { is_open = Open("layout1").ok(); });
  const absl::Duration pause = clock.AwaitWaiterWithin(absl::Seconds(1));
  first.reset();
  clock.Advance(pause);
  second.join();
  EXPECT_TRUE(is_open);
}

TEST_F(PinsTest, OneCollectorAtATime) {
  std::optional<absl::StatusOr<Pins>> first = Open("layout1");
  NEED_BPF(first->status());
  for (const char* layout : {"layout1", "layout2"}) {
    const absl::Status second = Open(layout).status();
    EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(second.message()), HasSubstr("another collector uses it"));
  }
  EXPECT_EQ(Pins::Holder(base_), getpid());
  // A lock ends with its holder, and not before.
  Pins moved = **std::move(first);
  first.reset();
  EXPECT_FALSE(Open("layout1").ok());
  { const Pins gone = std::move(moved); }
  EXPECT_EQ(Pins::Holder(base_), 0);
  EXPECT_TRUE(Open("layout1").ok());
}

TEST_F(PinsTest, FoldersWithoutPinsEndWithTheLock) {
  NEED_BPF(Open("layout1").status());
  EXPECT_FALSE(std::filesystem::exists(base_));
  {
    absl::StatusOr<Pins> pins = Open("layout1");
    ASSERT_TRUE(pins.ok()) << pins.status();
    ASSERT_TRUE(pins->Pin(MakeMap(3).get(), "map").ok());
  }
  { ASSERT_TRUE(Open("layout2").ok()); }
  absl::StatusOr<Pins> pins = Open("layout1");
  ASSERT_TRUE(pins.ok()) << pins.status();
  EXPECT_TRUE(pins->Has("map"));
  EXPECT_THAT(pins->OtherLayouts(), IsEmpty());
  // Who does not get the lock leaves them alone.
  pins->Remove("map");
  EXPECT_FALSE(Open("layout1").ok());
  EXPECT_TRUE(std::filesystem::exists(pins->folder()));
}

// No second folder can be made in it.
TEST_F(PinsTest, AFolderThatCannotBeCompletedIsRemoved) {
  NEED_BPF(Open("layout1").status());
  EXPECT_FALSE(Open("no/layout").ok());
  EXPECT_FALSE(std::filesystem::exists(base_));
}

TEST_F(PinsTest, AnothersFolderIsRefused) {
  NEED_BPF(Open("layout1").status());
  ASSERT_EQ(mkdir(base_.c_str(), 0700), 0);
  ASSERT_EQ(chown(base_.c_str(), 65534, 65534), 0);
  const absl::Status owner = Open("layout1").status();
  EXPECT_EQ(owner.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(owner.message()), HasSubstr("not belong to root alone"));
  ASSERT_EQ(chown(base_.c_str(), 0, 0), 0);
  for (const mode_t mode : {0755, 0710, 0707}) {
    ASSERT_EQ(chmod(base_.c_str(), mode), 0);
    EXPECT_EQ(Open("layout1").status().code(), absl::StatusCode::kFailedPrecondition) << mode;
  }
  ASSERT_EQ(chmod(base_.c_str(), 0700), 0);
  EXPECT_TRUE(Open("layout1").ok());
}

TEST_F(PinsTest, WhereNobodyCanPinIsSaid) {
  NEED_BPF(Open("layout1").status());
  const TemporaryFolder folder;
  WriteFile(folder / "file", "as it was");
  for (const std::string& parent : {folder.path(), folder / "none", std::string("/sys/fs/bpf/no-such-folder")}) {
    const absl::Status status = Pins::Open(parent + "/heaptap", "layout1").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << parent;
    EXPECT_THAT(std::string(status.message()), HasSubstr(parent));
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "file")) << "nothing is mounted over it";
  umount2(folder.path().c_str(), MNT_DETACH);
}

TEST_F(PinsTest, LayoutsDoNotMeet) {
  {
    absl::StatusOr<Pins> old = Open("layout1");
    NEED_BPF(old.status());
    ASSERT_TRUE(old->Pin(MakeMap(3).get(), "map").ok());
  }
  absl::StatusOr<Pins> pins = Open("layout2");
  ASSERT_TRUE(pins.ok()) << pins.status();
  EXPECT_FALSE(pins->Has("map"));
  EXPECT_THAT(pins->OtherLayouts(), ElementsAre("layout1"));
  ASSERT_TRUE(pins->Pin(MakeMap(4).get(), "map").ok());
  {
    const Pins other = pins->Other("layout1");
    EXPECT_EQ(EntriesOf(other.Get("map")->get()), 3u);
    other.RemoveAll();
  }
  EXPECT_THAT(pins->OtherLayouts(), IsEmpty());
  EXPECT_FALSE(Open("layout2").ok()) << "the lock is still ours";
  EXPECT_TRUE(pins->Has("map"));
  pins->RemoveAll();
  EXPECT_FALSE(std::filesystem::exists(base_));
}

}  // namespace
}  // namespace heaptap::bpf
