// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/folder.h"
#include "userspace/base/repeated_task.h"
#include "userspace/dumps/dump_folder.h"
#include "userspace/dumps/retention.h"

namespace heaptap::recording {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class RetentionTest : public ::testing::Test {
 protected:
  // A file that was written `age` before now_.
  void Make(const std::string& name, absl::Duration age, size_t bytes = 10) {
    std::ofstream(root_ / name) << std::string(bytes, 'x');
    SetAge(name, age);
  }
  void SetAge(const std::string& name, absl::Duration age) {
    const timespec time = absl::ToTimespec(now_ - age);
    const timespec times[] = {time, time};
    ASSERT_EQ(utimensat(AT_FDCWD, (root_ / name).c_str(), times, AT_SYMLINK_NOFOLLOW), 0) << strerror(errno);
  }
  // jeprof.1.0.f.heap to jeprof.1.<count - 1>.f.heap, each a second older than the next; the last is as old as now_.
  void MakeMany(int count) {
    for (int i = 0; i < count; i++) Make(Name(i), absl::Seconds(count - 1 - i));
  }
  static std::string Name(int number) { return absl::StrCat("jeprof.1.", number, ".f.heap"); }
  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(root_)) names.insert(entry.path().filename());
    return names;
  }
  DumpPruner Pruner(const Retention& retention) const {
    return DumpPruner(base::FileDescriptor(open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)), retention);
  }
  // Prunes at now_ and returns the number of files that are gone.
  uint64_t Prune(DumpPruner& pruner) {
    const absl::StatusOr<DumpPruner::Removed> removed = pruner.Prune(now_);
    EXPECT_TRUE(removed.ok()) << removed.status();
    return removed.ok() ? removed->files : 0;
  }

  TemporaryFolder folder_;
  fs::path root_ = folder_.path();
  absl::Time now_ = absl::FromUnixSeconds(1700000000);
};

TEST(IsDumpName, OwnNamesOnly) {
  for (const char* name : {"jeprof.1.0.f.heap", "jeprof.4194304.18446744073709551615.i0.heap", "a.1.0.m12.heap",
                           "a.b..c.1.0.u3.heap", "a b.1.0.f.heap"}) {
    EXPECT_TRUE(IsDumpName(name)) << name;
  }
  for (const char* name :
       {"", ".heap", "heap", "1.0.f.heap", ".1.0.f.heap", "..1.0.f.heap", "a.1.0.f", "a.1.0.f.heap.gz", "a.1.0.f0.heap",
        "a.1.0.i.heap", "a.1.0.x0.heap", "a.1.0..heap", "a..0.f.heap", "a.1..f.heap", "a.-1.0.f.heap", "a.1.0.m-1.heap",
        "a.1.0.f.Heap", "a.1.0.F.heap", ".a.1.0.f.heap.tmp"}) {
    EXPECT_FALSE(IsDumpName(name)) << name;
  }
}

TEST_F(RetentionTest, KnowsWhatTheFolderOfDumpsWrites) {
  absl::StatusOr<DumpFolder> folder = DumpFolder::Open((root_ / "jeprof").string());
  ASSERT_TRUE(folder.ok()) << folder.status();
  DumpSequence sequence;
  for (const heaptap_dump_kind kind :
       {HEAPTAP_DUMP_MANUAL, HEAPTAP_DUMP_INTERVAL, HEAPTAP_DUMP_HIGH_WATER, HEAPTAP_DUMP_FINAL}) {
    ASSERT_TRUE(folder->Name(*folder->Fill("x"), 42, kind, sequence).ok());
  }
  for (const std::string& name : Names()) EXPECT_TRUE(IsDumpName(name)) << name;
  EXPECT_THAT(Names(), SizeIs(4));
}

TEST_F(RetentionTest, WithoutBoundsNothingGoes) {
  MakeMany(3);
  DumpPruner pruner = Pruner({});
  EXPECT_EQ(Prune(pruner), 0);
  EXPECT_THAT(Names(), SizeIs(3));
}

TEST_F(RetentionTest, Count) {
  MakeMany(5);
  DumpPruner pruner = Pruner({.max_files = 2});
  const absl::StatusOr<DumpPruner::Removed> removed = pruner.Prune(now_);
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_EQ(removed->files, 3);
  EXPECT_EQ(removed->bytes, 30);
  EXPECT_THAT(Names(), ElementsAre(Name(3), Name(4)));
  EXPECT_EQ(Prune(pruner), 0);
}

TEST_F(RetentionTest, Bytes) {
  Make(Name(0), absl::Seconds(3), 1);
  Make(Name(1), absl::Seconds(2), 100);
  Make(Name(2), absl::Seconds(1), 10);
  Make(Name(3), absl::Seconds(0), 10);
  DumpPruner exact = Pruner({.max_bytes = 121});
  EXPECT_EQ(Prune(exact), 0);
  DumpPruner pruner = Pruner({.max_bytes = 119});
  EXPECT_EQ(Prune(pruner), 2) << "the small one is the oldest, but is not enough";
  EXPECT_THAT(Names(), ElementsAre(Name(2), Name(3)));
}

TEST_F(RetentionTest, Age) {
  MakeMany(5);
  DumpPruner pruner = Pruner({.max_age = absl::Seconds(2)});
  EXPECT_EQ(Prune(pruner), 2) << "that of exactly this age stays";
  EXPECT_THAT(Names(), ElementsAre(Name(2), Name(3), Name(4)));
  now_ += absl::Seconds(1);
  EXPECT_EQ(Prune(pruner), 1) << "time alone makes them old";
  EXPECT_THAT(Names(), ElementsAre(Name(3), Name(4)));
}

TEST_F(RetentionTest, AllBoundsMustHold) {
  MakeMany(6);
  DumpPruner pruner = Pruner({.max_age = absl::Seconds(4), .max_files = 4, .max_bytes = 20});
  EXPECT_EQ(Prune(pruner), 4);
  EXPECT_THAT(Names(), ElementsAre(Name(4), Name(5)));
}

TEST_F(RetentionTest, TheNewestStays) {
  MakeMany(3);
  now_ += absl::Hours(1000);
  DumpPruner pruner = Pruner({.max_age = absl::Seconds(1), .max_files = 1, .max_bytes = 1});
  EXPECT_EQ(Prune(pruner), 2);
  EXPECT_THAT(Names(), ElementsAre(Name(2)));
  EXPECT_EQ(Prune(pruner), 0);
}

// The clock was set back: the newest file looks older than the others.
TEST_F(RetentionTest, TheNewestIsTheLastThatWasWritten) {
  MakeMany(3);
  DumpPruner pruner = Pruner({.max_files = 1});
  Make(Name(7), absl::Hours(1));
  pruner.Added((root_ / Name(7)).string(), 10);
  EXPECT_EQ(Prune(pruner), 3);
  EXPECT_THAT(Names(), ElementsAre(Name(7)));
}

TEST_F(RetentionTest, OneAfterTheOther) {
  DumpPruner pruner = Pruner({.max_files = 3});
  for (int i = 0; i < 50; i++) {
    now_ += absl::Seconds(1);
    Make(Name(i), absl::ZeroDuration());
    pruner.Added(Name(i), 10);
    EXPECT_EQ(Prune(pruner), i < 3 ? 0 : 1) << i;
  }
  EXPECT_THAT(Names(), ElementsAre(Name(47), Name(48), Name(49)));
}

TEST_F(RetentionTest, MoreThanAreKeptInMind) {
  const int count = 2 * DumpPruner::kMaxOldest + 10;
  MakeMany(count);
  DumpPruner pruner = Pruner({.max_files = 2});
  EXPECT_EQ(Prune(pruner), count - 2);
  EXPECT_THAT(Names(), ElementsAre(Name(count - 2), Name(count - 1)));
}

// Files that were not reported to the pruner show whether it has read the folder.
TEST_F(RetentionTest, TheFolderIsNotReadAgainForNothing) {
  MakeMany(10);
  DumpPruner pruner = Pruner({.max_files = 10});
  EXPECT_EQ(Prune(pruner), 0);
  for (int i = 100; i < 120; i++) Make(Name(i), absl::Hours(1));
  EXPECT_EQ(Prune(pruner), 0) << "by what it knows all is well";
  Make(Name(200), absl::ZeroDuration());
  pruner.Added(Name(200), 10);
  EXPECT_EQ(Prune(pruner), 1) << "the oldest are known";
  EXPECT_FALSE(fs::exists(root_ / Name(0)));
  now_ += DumpPruner::kTrusted + absl::Seconds(1);
  Make(Name(201), absl::ZeroDuration());
  pruner.Added(Name(201), 10);
  EXPECT_EQ(Prune(pruner), 21) << "now it looks";
  EXPECT_THAT(Names(), SizeIs(10));
}

TEST_F(RetentionTest, WhatOthersRemovedDoesNotCount) {
  MakeMany(10);
  DumpPruner pruner = Pruner({.max_files = 10});
  EXPECT_EQ(Prune(pruner), 0);
  for (int i = 2; i < 9; i++) fs::remove(root_ / Name(i));
  now_ += DumpPruner::kTrusted + absl::Seconds(1);
  Make(Name(10), absl::ZeroDuration());
  pruner.Added(Name(10), 10);
  EXPECT_EQ(Prune(pruner), 0);
  EXPECT_THAT(Names(), ElementsAre(Name(0), Name(1), Name(10), Name(9)));
}

TEST_F(RetentionTest, AnOldDumpThatIsGoneAlreadyIsNoError) {
  MakeMany(4);
  DumpPruner pruner = Pruner({.max_files = 4});
  EXPECT_EQ(Prune(pruner), 0);
  fs::remove(root_ / Name(0));
  Make(Name(4), absl::ZeroDuration());
  pruner.Added(Name(4), 10);
  EXPECT_EQ(Prune(pruner), 0) << "one was too many, and one is gone";
  EXPECT_THAT(Names(), ElementsAre(Name(1), Name(2), Name(3), Name(4)));
}

TEST_F(RetentionTest, ADumpThatWasWrittenToIsNotOldAnyMore) {
  MakeMany(4);
  DumpPruner pruner = Pruner({.max_age = absl::Seconds(10)});
  EXPECT_EQ(Prune(pruner), 0);
  now_ += absl::Seconds(11);
  SetAge(Name(0), absl::Seconds(1));
  EXPECT_EQ(Prune(pruner), 2);
  EXPECT_THAT(Names(), ElementsAre(Name(0), Name(3)));
}

TEST_F(RetentionTest, NothingElseIsTouched) {
  fs::create_directory(root_ / "outside");
  std::ofstream(root_ / "outside" / "victim") << "x";
  fs::create_directory(root_ / "dumps");
  const fs::path outer = root_;
  root_ = outer / "dumps";
  MakeMany(3);
  Make("notes.txt", absl::Hours(1));
  Make("jeprof.1.0.f.heap.gz", absl::Hours(1));
  Make("jeprof.2.0.f.heap", absl::Hours(1));
  ASSERT_EQ(chown((root_ / "jeprof.2.0.f.heap").c_str(), 12345, -1), 0) << "a user's own";
  fs::create_directory(root_ / "jeprof.3.0.f.heap");
  fs::create_symlink("../outside/victim", root_ / "jeprof.4.0.f.heap");
  SetAge("jeprof.4.0.f.heap", absl::Hours(1));
  ASSERT_EQ(mkfifo((root_ / "jeprof.5.0.f.heap").c_str(), 0600), 0);
  DumpPruner pruner = Pruner({.max_age = absl::Seconds(1), .max_files = 1, .max_bytes = 1});
  EXPECT_EQ(Prune(pruner), 2);
  EXPECT_THAT(Names(), ElementsAre("jeprof.1.0.f.heap.gz", Name(2), "jeprof.2.0.f.heap", "jeprof.3.0.f.heap",
                                   "jeprof.4.0.f.heap", "jeprof.5.0.f.heap", "notes.txt"));
  root_ = outer;
  EXPECT_TRUE(fs::exists(root_ / "outside" / "victim"));
}

TEST_F(RetentionTest, WhatTakesADumpsPlaceStays) {
  MakeMany(3);
  DumpPruner pruner = Pruner({.max_age = absl::Seconds(10)});
  EXPECT_EQ(Prune(pruner), 0);
  std::ofstream(root_ / "victim") << "x";
  fs::remove(root_ / Name(0));
  fs::create_symlink("victim", root_ / Name(0));
  SetAge(Name(0), absl::Seconds(2));
  now_ += absl::Hours(1);
  EXPECT_EQ(Prune(pruner), 1);
  EXPECT_THAT(Names(), ElementsAre(Name(0), Name(2), "victim"));
}

TEST_F(RetentionTest, OtherBounds) {
  MakeMany(10);
  DumpPruner pruner = Pruner({.max_files = 10});
  EXPECT_EQ(Prune(pruner), 0);
  pruner.SetRetention({.max_files = 4});
  EXPECT_EQ(Prune(pruner), 6);
  pruner.SetRetention({});
  EXPECT_EQ(Prune(pruner), 0);
}

TEST_F(RetentionTest, AFailureIsSaidAndNotTriedAgainAtOnce) {
  const auto mount_it = [&](unsigned long flags) {
    return mount("tmpfs", root_.c_str(), "tmpfs", flags, "size=64k") == 0;
  };
  ASSERT_TRUE(mount_it(0)) << strerror(errno);
  const absl::Cleanup unmount = [&] { umount2(root_.c_str(), MNT_DETACH); };
  MakeMany(3);
  DumpPruner pruner = Pruner({.max_files = 1});
  ASSERT_TRUE(mount_it(MS_REMOUNT | MS_RDONLY)) << strerror(errno);
  const absl::Status status = pruner.Prune(now_).status();
  EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("cannot remove the old dump ", Name(0))));
  EXPECT_THAT(status.message(), HasSubstr("Read-only file system"));
  EXPECT_THAT(base::FailingTasks(), SizeIs(1));
  ASSERT_TRUE(mount_it(MS_REMOUNT)) << strerror(errno);
  EXPECT_EQ(Prune(pruner), 0);
  now_ += DumpPruner::kPatience;
  EXPECT_EQ(Prune(pruner), 2);
  EXPECT_THAT(Names(), ElementsAre(Name(2)));
}

TEST_F(RetentionTest, AFolderThatIsNoneIsSaid) {
  DumpPruner pruner(base::FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC)), {.max_files = 1});
  EXPECT_THAT(pruner.Prune(now_).status().message(), HasSubstr("cannot read the folder of dumps"));
}

}  // namespace
}  // namespace heaptap::recording
