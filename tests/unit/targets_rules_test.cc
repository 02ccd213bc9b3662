// SPDX-License-Identifier: Apache-2.0
#include <sys/types.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/targets/rules.h"

namespace heaptap::recording {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr pid_t kPid = 4711;

process::Facts Facts(const std::string& command, uid_t user = 1000, std::vector<std::string> groups = {"/"}) {
  return {.pid = kPid, .command = command, .user = user, .control_groups = std::move(groups)};
}

Rules Parse(const std::vector<std::string>& lines, const Policy& defaults = {}) {
  absl::StatusOr<Rules> rules = Rules::Parse(lines, defaults);
  if (!rules.ok()) {
    ADD_FAILURE() << rules.status();
    abort();
  }
  return *std::move(rules);
}

// Whether the one rule holds for the process.
bool Holds(const std::string& conditions, const process::Facts& facts) {
  return !Parse({absl::StrCat(conditions, " record=off")}).Find(facts).record;
}

std::string Error(const std::string& line) {
  const absl::Status status = Rules::Parse({line}, {}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << line << ": " << status;
  return std::string(status.message());
}

TEST(Rules, WithoutAnyTheDefaultsHold) {
  const Rules rules = Parse({}, {.lg_sample = 12, .max_live = 5});
  EXPECT_FALSE(rules.needs_facts());
  const Policy policy = rules.Find({.pid = kPid});
  EXPECT_TRUE(policy.record);
  EXPECT_EQ(policy.lg_sample, 12);
  EXPECT_EQ(policy.max_live, 5);
}

TEST(Rules, AllSettings) {
  const Policy policy = Parse({"record=off lg-sample=46 high-water=20 interval=3G every=1h30m max-live=7 "
                               "max-contexts=4294967295 dump-at-exit=always"})
                            .Find(Facts("x"));
  EXPECT_FALSE(policy.record);
  EXPECT_EQ(policy.lg_sample, 46);
  EXPECT_EQ(policy.triggers.high_water_percent, 20);
  EXPECT_EQ(policy.triggers.first_high_water, kFirstHighWater);
  EXPECT_EQ(policy.triggers.interval, uint64_t{3} << 30);
  EXPECT_EQ(policy.every, absl::Minutes(90));
  EXPECT_EQ(policy.max_live, 7);
  EXPECT_EQ(policy.max_contexts, 4294967295);
  EXPECT_EQ(policy.dump_at_exit, DumpAtExit::kAlways);
}

TEST(Rules, DefaultsFillInWhatARuleDoesNotSay) {
  const Policy defaults = {.lg_sample = 12,
                           .triggers = {.first_high_water = 1, .high_water_percent = 2, .interval = 3},
                           .every = absl::Minutes(4),
                           .max_live = 5,
                           .max_contexts = 6,
                           .dump_at_exit = DumpAtExit::kNever};
  const Policy policy = Parse({"comm=x exact"}, defaults).Find(Facts("x"));
  EXPECT_EQ(policy.lg_sample, 0);
  EXPECT_EQ(policy.triggers.first_high_water, 1);
  EXPECT_EQ(policy.triggers.high_water_percent, 2);
  EXPECT_EQ(policy.triggers.interval, 3);
  EXPECT_EQ(policy.every, absl::Minutes(4));
  EXPECT_EQ(policy.max_live, 5);
  EXPECT_EQ(policy.max_contexts, 6);
  EXPECT_EQ(policy.dump_at_exit, DumpAtExit::kNever);
}

TEST(Rules, OffTakesADefaultAway) {
  const Policy defaults = {.triggers = {.first_high_water = 1, .high_water_percent = 2, .interval = 3},
                           .every = absl::Minutes(4)};
  const Policy policy = Parse({"high-water=off interval=off every=off"}, defaults).Find(Facts("x"));
  EXPECT_EQ(policy.triggers.first_high_water, 0);
  EXPECT_EQ(policy.triggers.high_water_percent, 0);
  EXPECT_EQ(policy.triggers.interval, 0);
  EXPECT_EQ(policy.every, absl::ZeroDuration());
}

TEST(Rules, TheFirstThatHoldsDecidesAlone) {
  const Rules rules = Parse({"comm=a lg-sample=1", "comm=? max-live=2", "lg-sample=3"}, {.lg_sample = 19});
  EXPECT_EQ(rules.Find(Facts("a")).lg_sample, 1);
  EXPECT_EQ(rules.Find(Facts("a")).max_live, 0) << "later rules add nothing";
  EXPECT_EQ(rules.Find(Facts("b")).lg_sample, 19);
  EXPECT_EQ(rules.Find(Facts("b")).max_live, 2);
  EXPECT_EQ(rules.Find(Facts("cc")).lg_sample, 3);
}

TEST(Rules, ARuleWithoutSettingsKeepsTheDefaults) {
  const Rules rules = Parse({"comm=good", "record=off"});
  EXPECT_TRUE(rules.Find(Facts("good")).record);
  EXPECT_FALSE(rules.Find(Facts("bad")).record);
}

TEST(Rules, AllConditionsMustHold) {
  const std::string rule = "pid=4711 comm=x user=0 cgroup=/a";
  EXPECT_TRUE(Holds(rule, Facts("x", 0, {"/a"})));
  EXPECT_FALSE(Holds(rule, Facts("y", 0, {"/a"})));
  EXPECT_FALSE(Holds(rule, Facts("x", 1, {"/a"})));
  EXPECT_FALSE(Holds(rule, Facts("x", 0, {"/b"})));
  process::Facts other = Facts("x", 0, {"/a"});
  other.pid++;
  EXPECT_FALSE(Holds(rule, other));
}

TEST(Rules, Commands) {
  EXPECT_TRUE(Holds("comm=postgres", Facts("postgres")));
  EXPECT_FALSE(Holds("comm=postgres", Facts("postgres2"))) << "the whole name must match";
  EXPECT_TRUE(Holds("comm=post*", Facts("postgres")));
  EXPECT_TRUE(Holds("comm=[pq]*", Facts("postgres")));
  EXPECT_TRUE(Holds("comm=a?b", Facts("a b")));
  EXPECT_TRUE(Holds("comm=*=*", Facts("a=b"))) << "a rule's word is split at the first '='";
  EXPECT_TRUE(Holds("comm=*", Facts("\n\xff")));
}

TEST(Rules, Users) {
  EXPECT_TRUE(Holds("user=root", Facts("x", 0)));
  EXPECT_FALSE(Holds("user=root", Facts("x", 1)));
  EXPECT_TRUE(Holds("user=123456", Facts("x", 123456))) << "nobody has that name";
}

TEST(Rules, ControlGroups) {
  const process::Facts facts = Facts("x", 0, {"/", "/system.slice/redis.service"});
  EXPECT_TRUE(Holds("cgroup=/system.slice/redis.service", facts));
  EXPECT_TRUE(Holds("cgroup=/", facts));
  EXPECT_TRUE(Holds("cgroup=*redis*", facts)) << "* also matches '/'";
  EXPECT_FALSE(Holds("cgroup=redis*", facts));
  EXPECT_FALSE(Holds("cgroup=*", Facts("x", 0, {}))) << "no path, no match";
}

// Users name their control groups. A backtracking matcher would take years here, and the test would time out.
TEST(Rules, NoPathMakesAPatternSlow) {
  const process::Facts facts = Facts("x", 0, {absl::StrCat("/", std::string(4000, 'a'))});
  EXPECT_FALSE(Holds("cgroup=*a*a*a*a*a*a*a*a*b", facts));
}

TEST(Rules, NeedsFacts) {
  EXPECT_FALSE(Parse({"pid=1 record=off", "exact"}).needs_facts());
  EXPECT_TRUE(Parse({"exact", "comm=x exact"}).needs_facts());
  EXPECT_TRUE(Parse({"user=0 exact"}).needs_facts());
  EXPECT_TRUE(Parse({"cgroup=* exact"}).needs_facts());
}

TEST(Rules, BlanksBetweenWords) {
  EXPECT_TRUE(Holds(" \t comm=x\t\t", Facts("x")));
  EXPECT_THAT(Error(""), HasSubstr("empty"));
  EXPECT_THAT(Error(" \t"), HasSubstr("empty"));
}

TEST(Rules, AnErrorNamesTheRuleTheWordAndWhatIsRight) {
  EXPECT_EQ(Error("comm=x lg-sample=47"), "rule \"comm=x lg-sample=47\": lg-sample=47: expected a number from 0 to 46");
  EXPECT_THAT(Error("comm=x lg_sample=6"), HasSubstr(": lg_sample=6: unknown word; conditions are pid=N"));
  EXPECT_THAT(Error("comm=\x1b[2J colour=\x1b"), Not(HasSubstr("\x1b")));
}

TEST(Rules, BadValues) {
  for (const char* word : {"pid=",
                           "pid=0",
                           "pid=-1",
                           "pid=+1",
                           "pid=99999999999",
                           "pid=1x",
                           "comm=",
                           "comm=1234567890123456",
                           "cgroup=",
                           "user=",
                           "user=no-such-user-here",
                           "user=-1",
                           "user=4294967296",
                           "record",
                           "record=",
                           "record=yes",
                           "lg-sample",
                           "lg-sample=",
                           "lg-sample=-1",
                           "lg-sample=+1",
                           "lg-sample=0x1",
                           "lg-sample=1.5",
                           "exact=1",
                           "high-water",
                           "high-water=0",
                           "high-water=1000001",
                           "high-water=20%",
                           "interval=",
                           "interval=0",
                           "interval=0K",
                           "interval=K",
                           "interval=1KB",
                           "interval=-1",
                           "interval=1.5G",
                           "interval=8388608T",
                           "interval=9223372036854775808",
                           "interval=99999999999999999999",
                           "every=",
                           "every=0",
                           "every=999ms",
                           "every=-5m",
                           "every=inf",
                           "every=10",
                           "every=10 m",
                           "max-live=-1",
                           "max-live=4294967296",
                           "max-contexts=",
                           "max-contexts=all",
                           "dump-at-exit=",
                           "dump-at-exit=Fatal",
                           "=",
                           "=x",
                           "x",
                           "pid"}) {
    EXPECT_THAT(Error(absl::StrCat("comm=x ", word)), HasSubstr("rule \"comm=x "));
  }
}

TEST(Rules, EdgesOfValues) {
  EXPECT_EQ(Parse({"interval=9223372036854775807"}).Find(Facts("x")).triggers.interval, INT64_MAX);
  EXPECT_EQ(Parse({"interval=8388607T"}).Find(Facts("x")).triggers.interval, uint64_t{8388607} << 40);
  EXPECT_EQ(Parse({"interval=1k"}).Find(Facts("x")).triggers.interval, 1024);
  EXPECT_EQ(Parse({"high-water=1000000"}).Find(Facts("x")).triggers.high_water_percent, 1000000);
  EXPECT_EQ(Parse({"every=1s"}).Find(Facts("x")).every, absl::Seconds(1));
  EXPECT_EQ(Parse({"comm=123456789012345 exact"}).Find(Facts("123456789012345")).lg_sample, 0);
  EXPECT_EQ(Parse({"comm=12345678901234* exact"}).Find(Facts("123456789012345")).lg_sample, 0);
}

TEST(Rules, NothingIsSaidTwice) {
  EXPECT_THAT(Error("comm=a comm=b"), HasSubstr("comm=b: given twice"));
  EXPECT_THAT(Error("exact lg-sample=3"), HasSubstr("lg-sample=3: given twice"));
  EXPECT_THAT(Error("lg-sample=3 exact"), HasSubstr("exact: given twice"));
}

TEST(Rules, OneBadRuleIsEnough) {
  EXPECT_TRUE(absl::IsInvalidArgument(Rules::Parse({"exact", "comm=x bad"}, {}).status()));
}

TEST(SetPolicy, AnErrorChangesNothing) {
  Policy policy = {.lg_sample = 5};
  EXPECT_TRUE(absl::IsInvalidArgument(SetPolicy("lg-sample", "64", policy)));
  EXPECT_EQ(policy.lg_sample, 5);
  EXPECT_TRUE(absl::IsNotFound(SetPolicy("comm", "x", policy)));
}

}  // namespace
}  // namespace heaptap::recording
