// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/child.h"
#include "tests/unit/support/folder.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/doctor/checkup.h"

namespace heaptap::daemon {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

const Finding* Find(const std::vector<Finding>& findings, const std::string& subject) {
  const auto found = std::ranges::find(findings, subject, &Finding::subject);
  return found == findings.end() ? nullptr : &*found;
}

// Has code of its program in two mappings, then opens the file that it is given.
constexpr char kMapsItself[] = R"(
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int count, char** words) {
  const int program = open("/proc/self/exe", O_RDONLY);
  if (mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, program, 0) == MAP_FAILED || count != 2) return 1;
  open(words[1], O_WRONLY);
  for (;;) pause();
}
)";

// The process is a small program: the sanitized tests' own unwind table takes seconds.
TEST(Checkup, AProcessWithoutASampledAllocator) {
  const TemporaryFolder folder;
  const std::string program = folder / "program";
  const std::string fifo = folder / "fifo";
  WriteFile(program + ".c", kMapsItself);
  ASSERT_EQ(system(absl::StrCat("gcc -o ", program, " ", program, ".c").c_str()), 0);
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const Child child([&] { return execl(program.c_str(), program.c_str(), fifo.c_str(), nullptr) == 0; });
  ASSERT_TRUE(child.is_ready());
  const base::FileDescriptor opened(open(fifo.c_str(), O_RDONLY | O_CLOEXEC));  // when the program opens it too
  ASSERT_GE(opened.get(), 0);
  const std::vector<Finding> findings = CheckProcess(child.pid());
  EXPECT_EQ(findings[0].subject, absl::StrCat("process ", child.pid()));
  EXPECT_TRUE(findings[0].status.ok());
  const Finding* sampled = Find(findings, "sampled allocator");
  ASSERT_NE(sampled, nullptr);
  EXPECT_TRUE(absl::IsNotFound(sampled->status)) << sampled->status;
  EXPECT_EQ(sampled->detail, "");
  EXPECT_THAT(sampled->remedy, Not(::testing::IsEmpty()));
  const Finding* allocator = Find(findings, "allocator");
  ASSERT_NE(allocator, nullptr);
  EXPECT_TRUE(allocator->status.ok());
  EXPECT_THAT(allocator->detail, Not(::testing::IsEmpty()));
  // Of the program and of its libraries, each once.
  const Finding* table = Find(findings, "unwind table");
  ASSERT_NE(table, nullptr);
  EXPECT_THAT(table->detail, ::testing::ContainsRegex(": [1-9][0-9]* rows, [0-9]+ KiB"));
  std::vector<std::string> tables;
  for (const Finding& finding : findings) {
    if (finding.subject == "unwind table") tables.push_back(finding.detail);
  }
  std::ranges::sort(tables);
  EXPECT_EQ(std::ranges::adjacent_find(tables), tables.end());
}

TEST(Checkup, AProcessThatIsNotThere) {
  const std::vector<Finding> findings = CheckProcess(5'000'001);  // above the kernel's largest PID
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_TRUE(absl::IsNotFound(findings[0].status)) << findings[0].status;
  EXPECT_THAT(findings[0].remedy, HasSubstr("PID"));
}

TEST(Checkup, AProcessThatHasEnded) {
  const Child child;
  child.Kill();
  const std::vector<Finding> findings = CheckProcess(child.pid());
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_TRUE(absl::IsNotFound(findings[0].status)) << findings[0].status;
  EXPECT_THAT(std::string(findings[0].status.message()), HasSubstr("has no memory"));
}

}  // namespace
}  // namespace heaptap::daemon
