// SPDX-License-Identifier: Apache-2.0
//
// Tests which clients may see and do what.
#include <grp.h>
#include <sys/wait.h>

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/http_client.h"
#include "userspace/http/access.h"
#include "userspace/profile/figures.h"

namespace heaptap::api {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr uid_t kNobody = 65534;
constexpr gid_t kGroup = 4242;

TEST(AccessTest, WhoPays) {
  EXPECT_EQ(http::Access(http::Peer{0, {0}}, std::nullopt).payer(), 0u);
  EXPECT_EQ(http::Access(http::Peer{1000, {kGroup}}, kGroup).payer(), 0u) << "trusted as root is";
  EXPECT_EQ(http::Access(http::Peer{1000, {1000}}, kGroup).payer(), 1000u);
  EXPECT_EQ(http::Access(std::nullopt, kGroup, 1000).payer(), 1000u) << "TCP";
  EXPECT_EQ(http::Access(std::nullopt, kGroup).payer(), std::nullopt) << "TCP, of nobody knows whom";
}

TEST(AccessTest, Rules) {
  EXPECT_TRUE(http::Access(std::nullopt, std::nullopt).Sees(std::nullopt)) << "TCP";
  EXPECT_TRUE(http::Access(http::Peer{0, {0}}, std::nullopt).Sees(1000)) << "root";
  const http::Access other(http::Peer{1000, {1000, 100}}, std::nullopt);
  EXPECT_FALSE(other.SeesAll());
  EXPECT_TRUE(other.Sees(1000));
  EXPECT_FALSE(other.Sees(0));
  EXPECT_FALSE(other.Sees(1001));
  EXPECT_FALSE(other.Sees(std::nullopt)) << "it belongs to no one user";
  EXPECT_FALSE(http::Access(http::Peer{1000, {1000, 100}}, kGroup).Sees(0));
  EXPECT_TRUE(http::Access(http::Peer{1000, {1000, kGroup}}, kGroup).SeesAll());
  EXPECT_FALSE(http::Access(http::Peer{1000, {0}}, std::nullopt).SeesAll()) << "root's group is not root";
}

class HttpAccessTest : public ServerTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(geteuid(), 0u) << "needs root, to become somebody else";
    AddProcess(collector_, 42, 0, "roots", 4096);
    AddProcess(collector_, 43, kNobody, "nobodys", 100);
    AddProcess(collector_, 44, std::nullopt, "setuid", 100);
    for (const profile::ProcessSummary& process : collector_.processes)
      collector_.ended.push_back({.summary = process});
    options_.group = kGroup;
    Start();
  }

  // The answer that another user gets.
  Answered AskAs(uid_t uid, const std::vector<gid_t>& groups, const std::string& method, const std::string& target) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      if (setgroups(groups.size(), groups.data()) != 0 || setgid(uid) != 0 || setuid(uid) != 0) _exit(1);
      const base::FileDescriptor client = Connect();
      SendAll(client, RequestText(method, target));
      const std::string answer = ReceiveAll(client);
      _exit(write(ends[1], answer.data(), answer.size()) == static_cast<ssize_t>(answer.size()) ? 0 : 2);
    }
    close(ends[1]);
    std::string text;
    char part[4096];
    for (ssize_t got; (got = read(ends[0], part, sizeof(part))) > 0;) text.append(part, got);
    close(ends[0]);
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    return ParseAnswer(text);
  }
  Answered AskAsNobody(const std::string& method, const std::string& target) {
    return AskAs(kNobody, {}, method, target);
  }
};

std::vector<int> Pids(const json& list) {
  std::vector<int> pids;
  for (const json& process : list) pids.push_back(process["pid"]);
  return pids;
}

TEST_F(HttpAccessTest, RootSeesAll) {
  EXPECT_THAT(Pids(json::parse(Get("/processes.json").body)["processes"]), ElementsAre(42, 43, 44));
  EXPECT_THAT(Pids(json::parse(Get("/ended.json").body)["ended"]), ElementsAre(42, 43, 44));
  EXPECT_THAT(Get("/metrics").body, HasSubstr("heaptap_targets 3\n"));
}

TEST_F(HttpAccessTest, TcpSeesAll) {
  const Answered answer = Exchange(ConnectTcp(), RequestText("GET", "/processes.json"));
  EXPECT_THAT(Pids(json::parse(answer.body)["processes"]), ElementsAre(42, 43, 44));
}

TEST_F(HttpAccessTest, MembersOfTheGroupSeeAll) {
  const Answered answer = AskAs(kNobody, {7, kGroup}, "GET", "/processes.json");
  EXPECT_THAT(Pids(json::parse(answer.body)["processes"]), ElementsAre(42, 43, 44));
  EXPECT_EQ(AskAs(kNobody, {kGroup}, "POST", "/pid/42/active?value=off").status, 200);
}

TEST_F(HttpAccessTest, MembersOfManyGroups) {
  std::vector<gid_t> groups;
  for (gid_t group = 10000; group < 10500; ++group) groups.push_back(group);
  EXPECT_EQ(AskAs(kNobody, groups, "GET", "/pid/42/heap").status, 404);
  groups.push_back(kGroup);
  EXPECT_EQ(AskAs(kNobody, groups, "GET", "/pid/42/heap").status, 200);
}

TEST_F(HttpAccessTest, OthersSeeTheirOwn) {
  EXPECT_THAT(Pids(json::parse(AskAsNobody("GET", "/processes.json").body)["processes"]), ElementsAre(43));
  EXPECT_THAT(Pids(json::parse(AskAsNobody("GET", "/ended.json").body)["ended"]), ElementsAre(43));
  const std::string metrics = AskAsNobody("GET", "/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("heaptap_targets 1\n"));
  EXPECT_THAT(metrics, HasSubstr("{pid=\"43\",command=\"nobodys\"}"));
  EXPECT_THAT(metrics, Not(HasSubstr("roots")));
  EXPECT_THAT(metrics, Not(HasSubstr("setuid")));
  EXPECT_EQ(AskAsNobody("GET", "/").status, 200);
  EXPECT_EQ(AskAsNobody("GET", "/pid/43/profile.json").status, 200);
  EXPECT_EQ(AskAsNobody("GET", "/pid/42/profile.json").status, 404);
  EXPECT_EQ(AskAsNobody("GET", "/pid/43/heap").status, 200);
  EXPECT_EQ(AskAsNobody("GET", "/mtev/heap_profile").status, 200) << "there is one that it may see";
  EXPECT_EQ(AskAsNobody("POST", "/pid/43/active?value=on").status, 200);
  EXPECT_EQ(Pids(json::parse(AskAsNobody("POST", "/dump").body)["dumps"]), std::vector<int>({43}));
  EXPECT_EQ(AskAsNobody("POST", "/settle").status, 403);
  EXPECT_THAT(collector_.Deeds(), ElementsAre("active 43 on", "dump 43"));
}

TEST_F(HttpAccessTest, WhatOthersMayNotSeeIsNotThere) {
  const std::pair<const char*, const char*> kPaths[] = {
      {"GET", "heap"},
      {"GET", "pprof/heap"},
      {"GET", "pprof/cmdline"},
      {"GET", "pprof/symbol"},
      {"GET", "debug/pprof/heap"},
      {"GET", "allocator.json"},
      {"GET", "resident.json"},
      {"GET", "collapsed"},
      {"GET", "mtev/memory.json"},
      {"GET", "mtev/heap_profile?active=false"},
      {"POST", "dump"},
      {"POST", "active?value=off"},
      {"POST", "rate?lg=1"},
      {"POST", "pprof/symbol"},
  };
  for (const auto& [method, path] : kPaths) {
    for (int pid : {42, 44}) {
      const Answered hidden = AskAsNobody(method, absl::StrCat("/pid/", pid, "/", path));
      Answered absent = AskAsNobody(method, absl::StrCat("/pid/", pid + 10, "/", path));
      EXPECT_EQ(hidden.status, 404) << path;
      EXPECT_EQ(hidden.headers, absent.headers) << path;
      EXPECT_THAT(hidden.body, HasSubstr(absl::StrCat("process ", pid, " is not recorded"))) << path;
      EXPECT_THAT(absent.body, HasSubstr(absl::StrCat("process ", pid + 10, " is not recorded"))) << path;
    }
  }
  EXPECT_EQ(AskAsNobody("GET", "/mtev/heap_profile?pid=42&active=false").status, 404);
  EXPECT_THAT(collector_.Deeds(), IsEmpty());
}

}  // namespace
}  // namespace heaptap::api
