// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/base/messages.h"

namespace heaptap::base {
namespace {

using ::testing::EndsWith;

std::string Said(absl::string_view line) {
  testing::internal::CaptureStderr();
  Say(line);
  return testing::internal::GetCapturedStderr();
}

TEST(Messages, AreOneLineOfTextWhateverIsInThem) {
  EXPECT_EQ(Said("plain"), "heaptap: plain\n");
  EXPECT_EQ(Said("two\nlines"), "heaptap: two\\012lines\n") << "forged lines";
  EXPECT_EQ(Said("\x1b[2Jgone"), "heaptap: \\033[2Jgone\n") << "orders to the terminal";
  EXPECT_EQ(Said("\xc2\x9b"
                 "2J"),
            "heaptap: \\302\\2332J\n")
      << "the same in eight bits";
  EXPECT_EQ(Said("\xc3\xa9t\xc3\xa9 \xff"), "heaptap: \xc3\xa9t\xc3\xa9 \\377\n") << "UTF-8 stays";
}

TEST(Messages, AreCut) {
  const std::string said = Said(std::string(1 << 20, 'x'));
  EXPECT_LT(said.size(), 5000u);
  EXPECT_THAT(said, EndsWith("x ...\n"));
}

}  // namespace
}  // namespace heaptap::base
