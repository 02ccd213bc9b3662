// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/history_fixture.h"

namespace heaptap::history {
namespace {

using testing::HasSubstr;

using HistorySchemaTest = HistoryTest;

TEST_F(HistorySchemaTest, ACorruptFileIsSetAside) {
  for (const size_t offset : {size_t{0}, size_t{3} * 8192}) {
    SCOPED_TRACE(offset);
    {
      const std::unique_ptr<Writer> writer = Open();
      ASSERT_TRUE(writer->Begin().ok());
      const int64_t process = *writer->AddProcess(Process(42));
      ASSERT_TRUE(writer->AddPoint(process, kBegin, Holding({{0, {1, 1, 1}}})).ok());
      ASSERT_TRUE(writer->Commit().ok());
    }
    ASSERT_TRUE(Read({.pid = 42}).ok());
    {
      const int file = open(path_.c_str(), O_WRONLY);
      const std::string noise(8192, '\x5a');
      ASSERT_EQ(pwrite(file, noise.data(), noise.size(), static_cast<off_t>(offset)), 8192);
      close(file);
    }
    testing::internal::CaptureStderr();
    const std::unique_ptr<Writer> writer = Open();
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_THAT(said, HasSubstr("is corrupt ("));
    EXPECT_THAT(said, HasSubstr("history.db.corrupt, and a new one begins\n"));
    EXPECT_TRUE(std::filesystem::exists(path_ + ".corrupt"));
    EXPECT_TRUE(absl::IsNotFound(Read({.pid = 42}).status()));
  }
}

TEST_F(HistorySchemaTest, DamageOfWhatTheWriterRemembersIsFound) {
  const std::unique_ptr<Writer> writer = Open();
  ASSERT_TRUE(writer->database().Execute("PRAGMA wal_checkpoint(TRUNCATE)").ok());
  // From now on the writer has the first page in its memory, and need not read the page again.
  ASSERT_TRUE(writer->Begin().ok());
  ASSERT_TRUE(writer->AddProcess(Process(42)).ok());
  ASSERT_TRUE(writer->Commit().ok());
  EXPECT_TRUE(Check(path_).ok());
  {
    const int file = open(path_.c_str(), O_WRONLY);
    const std::string noise(8192, '\x5a');
    ASSERT_EQ(pwrite(file, noise.data(), noise.size(), 0), 8192);
    close(file);
  }
  EXPECT_TRUE(absl::IsDataLoss(Read({.pid = 42}).status()));
  EXPECT_TRUE(absl::IsDataLoss(Check(path_)));
}

TEST_F(HistorySchemaTest, AFileOfAnotherVersionStays) {
  {
    const std::unique_ptr<Writer> writer = Open();
    ASSERT_TRUE(writer->database().Execute("PRAGMA user_version = 99").ok());
  }
  EXPECT_THAT(Writer::Open(path_, kDefaultBytes).status().message(), HasSubstr("(schema 99, this one has 2)"));
  EXPECT_FALSE(std::filesystem::exists(path_ + ".corrupt"));
}

TEST_F(HistorySchemaTest, NobodyElseMayReadIt) {
  const std::unique_ptr<Writer> writer = Open();
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    struct stat status;
    ASSERT_EQ(stat(entry.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u) << entry.path();
  }
  // A link instead of the file is not followed.
  const std::string link = folder_ + "/link.db";
  ASSERT_EQ(symlink(path_.c_str(), link.c_str()), 0);
  EXPECT_FALSE(Writer::Open(link, kDefaultBytes).ok());
}

}  // namespace
}  // namespace heaptap::history
