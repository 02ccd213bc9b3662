// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/reader.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/cli/subjects/local_names.h"
#include "userspace/elf/file.h"
#include "userspace/elf/mappings.h"
#include "userspace/process/maps.h"
#include "userspace/profile/frame_names.h"
#include "userspace/symbolize/debug_files.h"

namespace heaptap::cli {

// Has a name in the symbol table.
[[gnu::noinline]] int FunctionOfTheTest(int argument) { return argument + getpid(); }

namespace {

using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

uint64_t Address() { return reinterpret_cast<uint64_t>(&FunctionOfTheTest); }

// A profile with these call addresses.
profile::Profile At(std::vector<elf::Mapping> mappings, std::vector<uint64_t> addresses) {
  profile::Context context;
  for (const uint64_t address : addresses) context.frames.push_back(address + 1);
  return {.contexts = {context}, .mappings = std::move(mappings)};
}

std::string OwnBuildId() {
  const base::FileDescriptor program(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  const absl::StatusOr<elf::File> file = elf::File::Open(program.get());
  const std::string build_id = file.ok() ? symbolize::ReadBuildId(*file) : "";
  EXPECT_THAT(build_id, Not(IsEmpty()));
  return build_id;
}

TEST(LocalNames, OfFilesThatAreHere) {
  const absl::StatusOr<std::vector<elf::Mapping>> mappings = process::ReadExecutableMappings(getpid());
  ASSERT_TRUE(mappings.ok());
  const LocalNames names(At(*mappings, {Address(), 1, Address(), UINT64_MAX - 1}));
  EXPECT_THAT(names.Find()(Address()),
              Contains(Field(&profile::SourceFrame::function, HasSubstr("FunctionOfTheTest"))));
  EXPECT_THAT(names.Find()(1), IsEmpty());
  EXPECT_THAT(names.missing(), IsEmpty());
}

TEST(LocalNames, NeverOfAnotherFile) {
  absl::StatusOr<std::vector<elf::Mapping>> mappings = process::ReadExecutableMappings(getpid());
  ASSERT_TRUE(mappings.ok());
  for (elf::Mapping& mapping : *mappings) mapping.inode++;
  const LocalNames names(At(*mappings, {Address()}));
  EXPECT_THAT(names.Find()(Address()), IsEmpty());
  EXPECT_THAT(names.missing(), Contains(HasSubstr("test")));
}

// Written in its place: it has the same device and inode.
TEST(LocalNames, NeverOfAnotherBuild) {
  absl::StatusOr<std::vector<elf::Mapping>> mappings = process::ReadExecutableMappings(getpid());
  ASSERT_TRUE(mappings.ok());
  const std::string build_id = OwnBuildId();
  for (elf::Mapping& mapping : *mappings) mapping.build_id = build_id;
  // Its time does not matter then.
  profile::Profile profile = At(*mappings, {Address()});
  profile.time = absl::UnixEpoch();
  EXPECT_THAT(LocalNames(profile).Find()(Address()), Not(IsEmpty()));
  for (elf::Mapping& mapping : profile.mappings) mapping.build_id.back() ^= 1;
  const LocalNames names(profile);
  EXPECT_THAT(names.Find()(Address()), IsEmpty());
  EXPECT_THAT(names.missing(), Contains(HasSubstr("test")));
}

// Where no build-id tells, the file must be older than the profile.
TEST(LocalNames, NeverOfAFileThatHasChangedSince) {
  const absl::StatusOr<std::vector<elf::Mapping>> mappings = process::ReadExecutableMappings(getpid());
  ASSERT_TRUE(mappings.ok());
  profile::Profile profile = At(*mappings, {Address()});
  struct stat status;
  ASSERT_EQ(stat("/proc/self/exe", &status), 0);
  profile.time = absl::TimeFromTimespec(status.st_ctim);
  EXPECT_THAT(LocalNames(profile).Find()(Address()), Not(IsEmpty()));
  profile.time = *profile.time - absl::Nanoseconds(1);
  const LocalNames names(profile);
  EXPECT_THAT(names.Find()(Address()), IsEmpty());
  EXPECT_THAT(names.missing(), Contains(HasSubstr("test")));
}

// A dump may name any path. Files that block or act when they are opened must not be opened.
TEST(LocalNames, OpensRegularFilesOnly) {
  const Reader folder;
  const std::string fifo = folder.Path("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path :
       {fifo, folder.Path("none"), std::string("/dev/zero"), std::string("/"), std::string()}) {
    struct stat status = {};
    stat(path.c_str(), &status);
    const elf::Mapping mapping = {.start = 0x1000,
                                  .end = 0x2000,
                                  .device_major = static_cast<uint32_t>(status.st_dev >> 8),
                                  .device_minor = static_cast<uint32_t>(status.st_dev & 0xff),
                                  .inode = status.st_ino + (status.st_ino == 0),
                                  .path = path};
    const LocalNames names(At({mapping}, {0x1234}));
    EXPECT_THAT(names.Find()(0x1234), IsEmpty());
    EXPECT_THAT(names.missing(), Contains(path));
  }
}

// As in profiles of pprof, which do not know inodes.
TEST(LocalNames, ByBuildId) {
  absl::StatusOr<std::vector<elf::Mapping>> mappings = process::ReadExecutableMappings(getpid());
  ASSERT_TRUE(mappings.ok());
  const std::string build_id = OwnBuildId();
  for (elf::Mapping& mapping : *mappings) {
    mapping.inode = 0;
    mapping.build_id = build_id;
  }
  EXPECT_THAT(LocalNames(At(*mappings, {Address()})).Find()(Address()),
              Contains(Field(&profile::SourceFrame::function, HasSubstr("FunctionOfTheTest"))));
  for (elf::Mapping& mapping : *mappings) mapping.build_id.back() ^= 1;
  const LocalNames others(At(*mappings, {Address()}));
  EXPECT_THAT(others.Find()(Address()), IsEmpty());
  EXPECT_THAT(others.missing(), Contains(HasSubstr("test")));
}

}  // namespace
}  // namespace heaptap::cli
