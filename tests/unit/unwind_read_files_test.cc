// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "userspace/elf/file_descriptor.h"
#include "userspace/unwind/read_files.h"

namespace heaptap::unwind {
namespace {

TEST(ReadFileTables, AsOneByOneInTheirOrder) {
  std::vector<elf::FileDescriptor> files;
  std::vector<int> numbers;
  for (const char* path : {"/lib/x86_64-linux-gnu/libc.so.6", "/etc/passwd", "/bin/true", "/dev/null", "/bin/bash",
                           "/lib/x86_64-linux-gnu/libm.so.6", "/bin/ls", "/bin/true"}) {
    files.emplace_back(open(path, O_RDONLY | O_CLOEXEC));
    numbers.push_back(files.back().get());
  }
  numbers.push_back(-1);
  const std::vector<absl::StatusOr<FileTable>> tables = ReadFileTables(numbers);
  ASSERT_EQ(tables.size(), numbers.size());
  int read = 0;
  for (size_t i = 0; i < tables.size(); i++) {
    const absl::StatusOr<FileTable> one = ReadFileTable(numbers[i]);
    EXPECT_EQ(tables[i].status(), one.status()) << i;
    if (!one.ok() || !tables[i].ok()) continue;
    EXPECT_TRUE(*tables[i] == *one) << i;
    read += !one->rows.empty();
  }
  EXPECT_EQ(read, 6);
}

TEST(ReadFileTables, None) { EXPECT_TRUE(ReadFileTables({}).empty()); }

}  // namespace
}  // namespace heaptap::unwind
