// SPDX-License-Identifier: Apache-2.0
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/cli/words/moment.h"

namespace heaptap::cli {
namespace {

using testing::HasSubstr;

const absl::TimeZone kZone = absl::FixedTimeZone(3600);
const absl::Time kNow = absl::FromCivil(absl::CivilSecond(2026, 3, 1, 12, 30, 0), kZone);

absl::Time Local(int month, int day, int hour, int minute, int second = 0) {
  return absl::FromCivil(absl::CivilSecond(2026, month, day, hour, minute, second), kZone);
}

TEST(MomentTest, Forms) {
  const std::pair<const char*, absl::Time> forms[] = {
      {"now", kNow},
      {"yesterday", kNow - absl::Hours(24)},
      {"90s", kNow - absl::Seconds(90)},
      {"1h30m", kNow - absl::Minutes(90)},
      {"3d", kNow - absl::Hours(72)},
      {"0.5d", kNow - absl::Hours(12)},
      {"2w", kNow - absl::Hours(24 * 14)},
      {"11:15", Local(3, 1, 11, 15)},
      {"11:15:30", Local(3, 1, 11, 15, 30)},
      {"23:00", Local(2, 28, 23, 0)},
      {"2026-02-27", Local(2, 27, 0, 0)},
      {"2026-02-27 08:05", Local(2, 27, 8, 5)},
      {"2026-02-27T08:05:09", Local(2, 27, 8, 5, 9)},
  };
  for (const auto& [text, time] : forms) {
    const absl::StatusOr<absl::Time> parsed = ParseMoment(text, kNow, kZone);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, time) << text;
  }
}

TEST(MomentTest, RefusesOtherTextsAndTheFuture) {
  for (const char* text : {"", "soon", "5", "-5m", "2027-01-01", "25:00", "d", "nan d", "1e300d", "inf"}) {
    EXPECT_FALSE(ParseMoment(text, kNow, kZone).ok()) << text;
  }
  EXPECT_THAT(ParseMoment("so\x1bon", kNow, kZone).status().message(), HasSubstr("so\\033on: expected a moment"));
}

TEST(MomentTest, OfAName) {
  EXPECT_FALSE(ParseNamedMoment("redis").has_value());
  EXPECT_FALSE(ParseNamedMoment("@now").has_value());
  const auto moment = ParseNamedMoment("postgresql@15-main@2h");
  ASSERT_TRUE(moment.has_value() && moment->ok());
  EXPECT_EQ((*moment)->name, "postgresql@15-main");
  EXPECT_FALSE(moment->value().is_last);
  EXPECT_FALSE(ParseNamedMoment("redis@x")->ok());
  const auto last = ParseNamedMoment("a@b@last");
  ASSERT_TRUE(last.has_value() && last->ok());
  EXPECT_EQ(last->value().name, "a@b");
  EXPECT_TRUE(last->value().is_last);
}

}  // namespace
}  // namespace heaptap::cli
