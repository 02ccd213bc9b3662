// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/folder.h"
#include "userspace/base/files.h"
#include "userspace/dumps/dump_folder.h"

namespace {

// What fdatasync fails with in this thread; 0: it works. And how often it was called.
thread_local int sync_error = 0;
thread_local int syncs = 0;

}  // namespace

// In front of libc's.
extern "C" int fdatasync(int fd) {
  syncs++;
  if (sync_error == 0) return static_cast<int>(syscall(SYS_fdatasync, fd));
  errno = sync_error;
  return -1;
}

namespace heaptap::recording {
namespace {

namespace fs = std::filesystem;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

absl::StatusOr<std::string> Write(const DumpFolder& folder, pid_t pid, heaptap_dump_kind kind, DumpSequence& sequence,
                                  const std::string& contents) {
  return folder.Name(*folder.Fill(contents), pid, kind, sequence);
}

class DumpFolderTest : public ::testing::Test {
 protected:
  ~DumpFolderTest() override {
    if (mounted_) umount2(root_.c_str(), MNT_DETACH);
  }

  std::string Prefix(const std::string& name = "jeprof") const { return root_ / name; }
  // All names, including hidden ones.
  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(root_)) names.insert(entry.path().filename());
    return names;
  }
  DumpFolder Open(const std::string& prefix) {
    absl::StatusOr<DumpFolder> folder = DumpFolder::Open(prefix);
    if (!folder.ok()) {
      ADD_FAILURE() << folder.status();
      abort();
    }
    return *std::move(folder);
  }

  TemporaryFolder folder_;
  fs::path root_ = folder_.path();
  bool mounted_ = false;
};

TEST_F(DumpFolderTest, NamesAreJemallocs) {
  const DumpFolder folder = Open(Prefix());
  DumpSequence sequence;
  for (const heaptap_dump_kind kind :
       {HEAPTAP_DUMP_MANUAL, HEAPTAP_DUMP_INTERVAL, HEAPTAP_DUMP_MANUAL, HEAPTAP_DUMP_HIGH_WATER, HEAPTAP_DUMP_FINAL}) {
    absl::StatusOr<std::string> path = Write(folder, 42, kind, sequence, "x");
    ASSERT_TRUE(path.ok()) << path.status();
    EXPECT_TRUE(fs::exists(*path)) << *path;
  }
  EXPECT_THAT(Names(), ElementsAre("jeprof.42.0.m0.heap", "jeprof.42.1.i0.heap", "jeprof.42.2.m1.heap",
                                   "jeprof.42.3.u0.heap", "jeprof.42.4.f.heap"));
  EXPECT_EQ(sequence.all, 5);
  EXPECT_EQ(sequence.manual, 2);
}

// A crash of the machine would otherwise leave a name without contents.
TEST_F(DumpFolderTest, ADumpIsOnTheDiskBeforeItHasAName) {
  const DumpFolder folder = Open(Prefix());
  DumpSequence sequence;
  syncs = 0;
  const std::shared_ptr<const DumpFile> dump = folder.Fill("contents");
  EXPECT_EQ(syncs, 1);
  EXPECT_THAT(Names(), IsEmpty());
  EXPECT_TRUE(folder.Name(*dump, 42, HEAPTAP_DUMP_MANUAL, sequence).ok());
  EXPECT_EQ(syncs, 1) << "only the thread that fills it waits for the disk";
  sync_error = EIO;
  const absl::StatusOr<std::string> failed = Write(folder, 42, HEAPTAP_DUMP_MANUAL, sequence, "contents");
  sync_error = 0;
  EXPECT_THAT(failed.status().message(), HasSubstr(strerror(EIO)));
  EXPECT_THAT(Names(), SizeIs(1));
}

TEST_F(DumpFolderTest, EachProcessHasItsOwnNumbers) {
  const DumpFolder folder = Open(Prefix());
  DumpSequence one;
  DumpSequence two;
  ASSERT_TRUE(Write(folder, 1, HEAPTAP_DUMP_FINAL, one, "x").ok());
  ASSERT_TRUE(Write(folder, 2, HEAPTAP_DUMP_FINAL, two, "x").ok());
  EXPECT_THAT(Names(), ElementsAre("jeprof.1.0.f.heap", "jeprof.2.0.f.heap"));
}

TEST_F(DumpFolderTest, WritesAllForTheOwnerOnly) {
  const DumpFolder folder = Open(Prefix());
  DumpSequence sequence;
  const std::string contents(3 << 20, 'p');
  absl::StatusOr<std::string> path = Write(folder, 1, HEAPTAP_DUMP_FINAL, sequence, contents);
  ASSERT_TRUE(path.ok());
  EXPECT_EQ(ReadFile(*path), contents);
  struct stat status;
  ASSERT_EQ(stat(path->c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600);
}

TEST_F(DumpFolderTest, WhatIsThereIsNeverTouched) {
  const DumpFolder folder = Open(Prefix());
  std::ofstream(root_ / "jeprof.7.0.f.heap") << "old";
  fs::create_symlink(root_ / "elsewhere", root_ / "jeprof.7.1.f.heap");
  fs::create_directory(root_ / "jeprof.7.2.f.heap");
  DumpSequence sequence;
  absl::StatusOr<std::string> path = Write(folder, 7, HEAPTAP_DUMP_FINAL, sequence, "new");
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(fs::path(*path).filename(), "jeprof.7.3.f.heap");
  EXPECT_EQ(ReadFile(root_ / "jeprof.7.0.f.heap"), "old");
  EXPECT_FALSE(fs::exists(root_ / "elsewhere"));
  EXPECT_EQ(sequence.all, 4);
}

// Any process that may write to the folder can guess the temporary name.
TEST_F(DumpFolderTest, NoPreparedFileStopsOrRedirectsADump) {
  const DumpFolder folder = Open(Prefix());
  std::ofstream(root_ / "victim") << "old";
  fs::create_symlink(root_ / "victim", root_ / absl::StrCat(".jeprof.7.0.f.heap.", getpid(), ".tmp"));
  DumpSequence sequence;
  absl::StatusOr<std::string> path = Write(folder, 7, HEAPTAP_DUMP_FINAL, sequence, "new");
  EXPECT_EQ(ReadFile(root_ / "victim"), "old");
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(ReadFile(*path), "new");
}

TEST_F(DumpFolderTest, TheFolderIsOpenedOnce) {
  fs::create_directory(root_ / "a");
  const DumpFolder folder = Open(root_ / "a" / "jeprof");
  fs::rename(root_ / "a", root_ / "b");
  fs::create_directory(root_ / "a");
  DumpSequence sequence;
  ASSERT_TRUE(Write(folder, 1, HEAPTAP_DUMP_FINAL, sequence, "x").ok());
  EXPECT_TRUE(fs::exists(root_ / "b" / "jeprof.1.0.f.heap"));
  EXPECT_TRUE(fs::is_empty(root_ / "a"));
}

// A dump has no name before it is complete.
TEST_F(DumpFolderTest, AWriterThatIsKilledLeavesNoPartOfADump) {
  constexpr rlim_t kWritten = 1 << 20;
  const DumpFolder folder = Open(Prefix());
  const pid_t writer = fork();
  ASSERT_GE(writer, 0);
  if (writer == 0) {
    // The kernel ends it there, also where this program was started with the signal ignored.
    signal(SIGXFSZ, SIG_DFL);
    const rlimit no_core = {0, 0};
    const rlimit file_size = {kWritten, kWritten};
    if (setrlimit(RLIMIT_CORE, &no_core) != 0 || setrlimit(RLIMIT_FSIZE, &file_size) != 0) _exit(1);
    DumpSequence sequence;
    _exit(Write(folder, 7, HEAPTAP_DUMP_FINAL, sequence, std::string(3 * kWritten, 'p')).ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(writer, &status, 0), writer);
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_EQ(WTERMSIG(status), SIGXFSZ);
  EXPECT_THAT(Names(), Each(StartsWith("."))) << "where files need a name, it is a hidden one";
}

TEST_F(DumpFolderTest, AFullFileSystemLeavesNothing) {
  if (mount("tmpfs", root_.c_str(), "tmpfs", 0, "size=64k") != 0) FAIL() << "mount: " << strerror(errno);
  mounted_ = true;
  const DumpFolder folder = Open(Prefix());
  DumpSequence sequence;
  absl::StatusOr<std::string> path = Write(folder, 1, HEAPTAP_DUMP_MANUAL, sequence, std::string(1 << 20, 'p'));
  ASSERT_FALSE(path.ok());
  EXPECT_THAT(path.status().message(), HasSubstr("No space left"));
  EXPECT_THAT(path.status().message(), HasSubstr(Prefix("jeprof.1.0.m0.heap")));
  EXPECT_THAT(Names(), IsEmpty());
  EXPECT_EQ(sequence.all, 0) << "the next dump takes the same number";
  EXPECT_TRUE(Write(folder, 1, HEAPTAP_DUMP_MANUAL, sequence, "small").ok());
}

TEST_F(DumpFolderTest, ReadOnlyFileSystem) {
  if (mount("tmpfs", root_.c_str(), "tmpfs", MS_RDONLY, "size=64k") != 0) FAIL() << "mount: " << strerror(errno);
  mounted_ = true;
  const absl::Status status = DumpFolder::Open(Prefix()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("Read-only file system"));
}

TEST_F(DumpFolderTest, BadPrefixes) {
  EXPECT_TRUE(absl::IsInvalidArgument(DumpFolder::Open(absl::StrCat(root_.string(), "/")).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(DumpFolder::Open("").status()));
  const absl::Status missing = DumpFolder::Open(Prefix("no/jeprof")).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(missing)) << missing;
  EXPECT_THAT(missing.message(), HasSubstr("choose another folder with -o"));
  const absl::Status long_name = DumpFolder::Open(Prefix(std::string(200, 'x'))).status();
  EXPECT_TRUE(absl::IsInvalidArgument(long_name)) << "no name of a dump fits";
  EXPECT_TRUE(DumpFolder::Open(Prefix(std::string(180, 'x'))).ok());
  std::ofstream(root_ / "file") << "x";
  EXPECT_TRUE(absl::IsFailedPrecondition(DumpFolder::Open(Prefix("file/jeprof")).status()));
}

TEST_F(DumpFolderTest, ThisFolderIsTheDefault) {
  const fs::path before = fs::current_path();
  fs::current_path(root_);
  const DumpFolder folder = Open("short");
  fs::current_path(before);
  DumpSequence sequence;
  absl::StatusOr<std::string> path = Write(folder, 1, HEAPTAP_DUMP_FINAL, sequence, "x");
  ASSERT_TRUE(path.ok());
  EXPECT_EQ(*path, "short.1.0.f.heap");
  EXPECT_TRUE(fs::exists(root_ / "short.1.0.f.heap"));
}

TEST(WriteAll, BeginsAtTheBeginning) {
  base::FileDescriptor file(open(::testing::TempDir().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  ASSERT_TRUE(file.valid());
  ASSERT_EQ(lseek(file.get(), 100, SEEK_SET), 100);
  EXPECT_EQ(base::WriteAll(file.get(), "hello"), 0);
  char text[8] = {};
  EXPECT_EQ(pread(file.get(), text, sizeof(text), 0), 5);
  EXPECT_STREQ(text, "hello");
  EXPECT_EQ(base::WriteAll(-1, "x"), EBADF);
}

}  // namespace
}  // namespace heaptap::recording
