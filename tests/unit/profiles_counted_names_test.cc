// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "userspace/profiles/counted_names.h"

namespace heaptap::recording {
namespace {

TEST(CountedNames, EachNameOnce) {
  CountedNames names;
  EXPECT_TRUE(names.empty());
  for (const char* name : {"ls", "cc1", "cc1", "as", "cc1"}) names.Add(name);
  EXPECT_EQ(names.Text(), "as, cc1 (3 times), ls");
  EXPECT_EQ(names.processes(), 5u);
}

TEST(CountedNames, HaveABound) {
  CountedNames names;
  for (size_t i = 0; i < 3 * CountedNames::kMost; i++) names.Add(absl::StrCat("p", i));
  for (size_t i = 0; i < CountedNames::kMost; i++) names.Add("p0");
  EXPECT_EQ(names.processes(), 4 * CountedNames::kMost);
  const std::string text = names.Text();
  EXPECT_TRUE(absl::StartsWith(text, absl::StrCat("p0 (", CountedNames::kMost + 1, " times), p1, "))) << text;
  EXPECT_TRUE(absl::EndsWith(text, ", ...")) << text;
  EXPECT_FALSE(absl::StrContains(text, absl::StrCat("p", CountedNames::kMost))) << text;
}

}  // namespace
}  // namespace heaptap::recording
