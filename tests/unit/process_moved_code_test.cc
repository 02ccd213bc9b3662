// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/unit/support/child.h"
#include "tests/unit/support/folder.h"
#include "userspace/elf/mappings.h"
#include "userspace/process/maps.h"
#include "userspace/process/moved_code.h"

namespace heaptap::process {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kPages = 6;

// A process that has mapped a file, whose pages from the second to the last but one are anonymous code.
class MovedCodeOfProcess : public ::testing::Test {
 protected:
  MovedCodeOfProcess() {
    std::string content(kPages * kPage, '\0');
    for (size_t i = 0; i < content.size(); i++) content[i] = static_cast<char>(i * 7 + i / kPage);
    WriteFile(path_, content);
  }

  // `wrong`: the byte of the file that has another value in memory; none of them if it is too large.
  bool IsNamed(size_t wrong) {
    const Child child([&] {
      const int file = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
      auto* const all = static_cast<char*>(mmap(nullptr, kPages * kPage, PROT_READ, MAP_PRIVATE, file, 0));
      if (all == MAP_FAILED) return false;
      const std::string code(all + kPage, (kPages - 2) * kPage);
      char* const moved = all + kPage;
      if (mmap(moved, code.size(), PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
               0) != moved) {
        return false;
      }
      memcpy(moved, code.data(), code.size());
      if (wrong < kPages * kPage) all[wrong]++;
      return true;
    });
    EXPECT_TRUE(child.is_ready());
    const absl::StatusOr<std::string> maps = ReadMaps(child.pid());
    EXPECT_TRUE(maps.ok()) << maps.status();
    const absl::StatusOr<std::vector<elf::Mapping>> mappings = elf::ParseMaps(NameMovedCode(child.pid(), *maps));
    EXPECT_TRUE(mappings.ok()) << mappings.status();
    const auto found = std::ranges::find(*mappings, path_, &elf::Mapping::path);
    if (found == mappings->end()) return false;
    EXPECT_EQ(found->file_offset, kPage);
    EXPECT_EQ(found->end - found->start, (kPages - 2) * kPage);
    return true;
  }

 private:
  TemporaryFolder folder_;
  const std::string path_ = folder_ / "code";
};

TEST_F(MovedCodeOfProcess, IsThatOfTheFile) { EXPECT_TRUE(IsNamed(kPages * kPage)); }

TEST_F(MovedCodeOfProcess, OtherCodeAtThatPlaceIsNot) {
  for (const size_t wrong : {kPage, kPages * kPage / 2, (kPages - 1) * kPage - 1}) {
    EXPECT_FALSE(IsNamed(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace heaptap::process
