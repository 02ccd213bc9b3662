// SPDX-License-Identifier: Apache-2.0
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/attach/idle_files.h"

namespace heaptap::recording {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kLasting = 1;
constexpr uint64_t kOther = 2;

class IdleFilesTest : public testing::Test {
 protected:
  IdleFilesTest() {
    files_.NoteAttached(kLasting, true);
    files_.NoteAttached(kOther, false);
  }

  IdleFiles files_;
  base::Instant now_ = base::Instant::FromNanoseconds(1);
};

TEST_F(IdleFilesTest, FilesOnTheRootFileSystemStay) {
  EXPECT_THAT(files_.Due({kLasting, kOther}, now_), ElementsAre(kOther));
  EXPECT_THAT(files_.Due({kLasting}, now_ + IdleFiles::kLasting - absl::Nanoseconds(1)), IsEmpty());
  EXPECT_THAT(files_.Due({kLasting}, now_ + IdleFiles::kLasting), ElementsAre(kLasting));
  EXPECT_THAT(files_.Due({kLasting}, now_ + IdleFiles::kLasting), ElementsAre(kLasting)) << "until it is released";
}

TEST_F(IdleFilesTest, AUseBeginsTheTimeAnew) {
  const base::Instant half = now_ + IdleFiles::kLasting / 2;
  files_.Due({kLasting}, now_);
  files_.NoteUsed(kLasting);
  EXPECT_THAT(files_.Due({kLasting}, half), IsEmpty());
  EXPECT_THAT(files_.Due({kLasting}, now_ + IdleFiles::kLasting), IsEmpty());
  EXPECT_THAT(files_.Due({}, half + IdleFiles::kLasting), IsEmpty()) << "a process maps it";
  EXPECT_THAT(files_.Due({kLasting}, half + IdleFiles::kLasting), IsEmpty());
}

TEST_F(IdleFilesTest, TheLongestIdleGoBeyondABound) {
  std::set<uint64_t> unused;
  for (uint64_t file = 100; file < 100 + IdleFiles::kMostLasting; file++) {
    files_.NoteAttached(file, true);
    unused.insert(file);
    now_ = now_ + absl::Seconds(1);
    EXPECT_THAT(files_.Due(unused, now_), IsEmpty());
  }
  files_.NoteAttached(50, true);
  unused.insert(50);
  EXPECT_THAT(files_.Due(unused, now_ + absl::Seconds(1)), ElementsAre(100));
}

TEST_F(IdleFilesTest, ANumberMayBecomeThatOfAnotherFile) {
  files_.NoteAttached(kLasting, false);
  EXPECT_THAT(files_.Due({kLasting}, now_), ElementsAre(kLasting));
}

}  // namespace
}  // namespace heaptap::recording
