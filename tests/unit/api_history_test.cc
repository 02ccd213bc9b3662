// SPDX-License-Identifier: Apache-2.0
//
// The endpoints of the history: moments, ranges, marks, and what a client may ask.
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/unit/fake_collector.h"
#include "tests/unit/history_fixture.h"
#include "tests/unit/support/fake_clock.h"
#include "userspace/api/endpoints.h"
#include "userspace/api/history_place.h"
#include "userspace/http/client_time.h"

namespace heaptap::api {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr uid_t kUser = 1234;

// Points of a process of each of two users: one each ten seconds, the latest now.
class ApiHistoryTest : public history::HistoryTest {
 protected:
  static constexpr int kPoints = 3;
  static constexpr absl::Duration kInterval = absl::Seconds(10);

  ApiHistoryTest() {
    clock_.AdvanceWall(history::kBegin + (kPoints - 1) * kInterval - clock_.WallNow());
    const std::unique_ptr<history::Writer> writer = Open();
    EXPECT_TRUE(writer->Begin().ok());
    int64_t of_root = *writer->AddProcess(Process(42, "shop", 0));
    int64_t of_user = *writer->AddProcess(Process(43, "game", kUser));
    for (int i = 0; i < kPoints; i++) {
      history::Point point = {.live_bytes = static_cast<uint64_t>(100 * (i + 1))};
      EXPECT_TRUE(writer->AddPoint(of_root, history::kBegin + i * kInterval, point).ok());
      EXPECT_TRUE(writer->AddPoint(of_user, history::kBegin + i * kInterval, point).ok());
    }
    EXPECT_TRUE(writer->Commit().ok());
    AddProcess(collector_, 42, 0, "shop", 4096);
    AddProcess(collector_, 43, kUser, "game", 4096);
    place_ = std::make_unique<HistoryPlace>(path_);
  }

  http::Response Ask(const std::string& path, std::multimap<std::string, std::string> parameters,
                     std::optional<uid_t> user = 0, const std::string& method = "GET") {
    http::Request request;
    request.method = method;
    request.path = path;
    for (const auto& [name, value] : parameters) request.parameters.emplace(name, value);
    std::optional<http::Peer> peer;
    if (user.has_value()) peer = http::Peer{.uid = *user};
    return MakeHandler(collector_, crews_, place_.get())(request, http::Access(peer, std::nullopt),
                                                         [](absl::Duration) { return true; });
  }
  // The live bytes of the points that are shown.
  std::vector<uint64_t> Points(std::multimap<std::string, std::string> parameters) {
    parameters.emplace("name", "shop");
    const http::Response response = Ask("/history.json", std::move(parameters));
    EXPECT_EQ(response.status, 200) << response.body;
    std::vector<uint64_t> bytes;
    const nlohmann::json document = nlohmann::json::parse(response.body, nullptr, false);
    if (!document.is_object() || !document.contains("points")) return bytes;
    for (const auto& point : document["points"]) bytes.push_back(point["live_bytes"]);
    return bytes;
  }

  FakeClock clock_;
  FakeCollector collector_;
  worker::Crews crews_;
  std::unique_ptr<HistoryPlace> place_;
};

TEST_F(ApiHistoryTest, TimesFromNow) {
  EXPECT_THAT(Points({}), ElementsAre(100, 200, 300));
  EXPECT_THAT(Points({{"since", "-10"}}), ElementsAre(200, 300));
  EXPECT_THAT(Points({{"until", "-10"}}), ElementsAre(100));
  EXPECT_THAT(Points({{"until", "-9.9"}}), ElementsAre(100, 200));
  EXPECT_THAT(Points({{"at", "-10"}}), ElementsAre(200));
  EXPECT_THAT(Points({{"at", "0"}}), ElementsAre(300));
}

TEST_F(ApiHistoryTest, TimesSince1970) {
  const int64_t begin = absl::ToUnixSeconds(history::kBegin);
  EXPECT_THAT(Points({{"at", absl::StrCat(begin)}}), ElementsAre(100));
  EXPECT_THAT(Points({{"since", absl::StrCat(begin, ".5")}}), ElementsAre(200, 300));
}

TEST_F(ApiHistoryTest, BadTimesAndNumbers) {
  for (const auto& [name, value] : std::multimap<std::string, std::string>{{"at", "x"},
                                                                           {"at", "nan"},
                                                                           {"since", "1e300"},
                                                                           {"until", ""},
                                                                           {"points", "1"},
                                                                           {"points", "2001"},
                                                                           {"paths", "1001"},
                                                                           {"paths", "-1"},
                                                                           {"pid", "0"}}) {
    const http::Response response = Ask("/history.json", {{"name", "shop"}, {name, value}});
    EXPECT_EQ(response.status, 400) << name << "=" << value;
    EXPECT_THAT(response.body, HasSubstr(name));
  }
  for (const char* points : {"2", "2000"}) {
    EXPECT_EQ(Ask("/history.json", {{"name", "shop"}, {"points", points}}).status, 200);
  }
}

// The page folds what its views of a profile fold, and shows the same names.
TEST_F(ApiHistoryTest, FramesHaveTheNamesOfViews) {
  const std::unique_ptr<history::Writer> writer = Open();
  ASSERT_TRUE(writer->Begin().ok());
  const int64_t process = *writer->AddProcess(Process(44, "named"));
  const uint64_t path = Path(*writer, process, {0x10, 0x20, 0x30, 0x40});
  ASSERT_TRUE(writer->AddPoint(process, history::kBegin, Holding({{path, {100, 1, 1}}})).ok());
  ASSERT_TRUE(writer->Commit().ok());
  const std::vector<std::string> functions = {"std::vector<int, std::allocator<int> >::push_back(int&&)",
                                              "shop::Cart<int>::Add(int)", "", "main"};
  const absl::StatusOr<std::unique_ptr<history::NameWriter>> names = history::NameWriter::Open(path_);
  ASSERT_TRUE(names.ok());
  for (size_t i = 0; i < functions.size(); i++) {
    if (functions[i].empty()) continue;
    const history::Writer::NewFrame& frame = new_frames_[i];
    ASSERT_TRUE((*names)->Write(frame.place.file, "abcd", {{frame.frame, {{.function = functions[i]}}}}).ok());
  }
  const nlohmann::json document = nlohmann::json::parse(Ask("/history.json", {{"name", "named"}}).body);
  std::vector<std::pair<std::string, bool>> shown;
  for (const auto& frame : document["paths"][0]["frames"]) shown.emplace_back(frame["short"], frame["folded"]);
  EXPECT_THAT(shown, ElementsAre(Pair("std::vector<...>::push_back", true), Pair("shop::Cart<...>::Add", false),
                                 Pair("server+0x30", false), Pair("main", false)));
}

TEST_F(ApiHistoryTest, EachUserSeesTheOwnProcesses) {
  EXPECT_EQ(Ask("/history.json", {{"name", "shop"}}, kUser).status, 404);
  EXPECT_EQ(Ask("/history.json", {{"name", "game"}}, kUser).status, 200);
  const std::string services = Ask("/history.json", {}, kUser).body;
  EXPECT_THAT(services, HasSubstr("game"));
  EXPECT_THAT(services, Not(HasSubstr("shop")));
}

TEST_F(ApiHistoryTest, WhoHasAskedTooMuchWaits) {
  // Its handler has the accounts.
  const http::Handler handler = MakeHandler(collector_, crews_, place_.get());
  const auto ask = [&](uid_t user) {
    const http::Request request = {.method = "GET", .path = "/history.json", .parameters = {{"name", "game"}}};
    return handler(request, http::Access(http::Peer{.uid = user}, std::nullopt), [](absl::Duration) { return true; });
  };
  collector_.WhenAsked([&](const std::string&) { clock_.Work(http::ClientTime::kBurst); });
  const http::Request list = {.method = "GET", .path = "/processes.json"};
  handler(list, http::Access(http::Peer{.uid = kUser}, std::nullopt), [](absl::Duration) { return true; });
  const http::Response response = ask(kUser);
  EXPECT_EQ(response.status, 429);
  EXPECT_THAT(response.headers, Contains(Pair("Retry-After", "1")));
  EXPECT_THAT(response.body, HasSubstr("try again"));
  EXPECT_EQ(ask(0).status, 200) << "root has no account";
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_EQ(ask(kUser).status, 200);
}

TEST_F(ApiHistoryTest, MarksHaveTheTimeOfNow) {
  const auto mark = [&](std::multimap<std::string, std::string> parameters, uid_t user) {
    return Ask("/mark", std::move(parameters), user, "POST").status;
  };
  EXPECT_EQ(mark({{"text", "deployed"}}, 0), 200);
  EXPECT_EQ(mark({{"text", "mine"}, {"pid", "43"}}, kUser), 200);
  EXPECT_EQ(mark({{"text", "of all"}}, kUser), 403);
  EXPECT_EQ(mark({{"text", "of another"}, {"pid", "42"}}, kUser), 404);
  EXPECT_EQ(mark({{"text", ""}}, 0), 400);
  EXPECT_EQ(mark({{"text", std::string(201, 'x')}}, 0), 400);
  EXPECT_EQ(mark({{"text", std::string(200, 'x')}}, 0), 200);
  const absl::StatusOr<history::Timeline> timeline = Read({.name = "game"});
  ASSERT_TRUE(timeline.ok()) << timeline.status();
  ASSERT_THAT(timeline->marks, SizeIs(4));
  EXPECT_EQ(timeline->marks[0].kind, "start");
  EXPECT_EQ(timeline->marks[1].text, "deployed");
  EXPECT_EQ(timeline->marks[1].pid, std::nullopt);
  EXPECT_EQ(timeline->marks[1].time, clock_.WallNow());
  EXPECT_EQ(timeline->marks[2].text, "mine");
  EXPECT_EQ(timeline->marks[2].pid, 43);
}

// Of the table of processes: null where too little is known.
TEST_F(ApiHistoryTest, ProcessesHaveTheirGrowth) {
  const auto growth = [&] {
    const nlohmann::json document = nlohmann::json::parse(Ask("/processes.json", {}).body);
    std::vector<nlohmann::json> figures;
    for (const char* name : {"growth_per_minute", "growth_error", "growth_seconds"}) {
      figures.push_back(document["processes"][0][name]);
    }
    return figures;
  };
  EXPECT_THAT(growth(), ElementsAre(nullptr, nullptr, nullptr)) << "20 seconds";
  const absl::StatusOr<int64_t> process = history::FindProcess(path_, 42, 420);
  ASSERT_TRUE(process.ok());
  const std::unique_ptr<history::Writer> writer = Open();
  ASSERT_TRUE(writer->Begin().ok());
  ASSERT_TRUE(writer->AddPoint(*process, history::kBegin + absl::Minutes(2), {.live_bytes = 1100}).ok());
  ASSERT_TRUE(writer->Commit().ok());
  EXPECT_THAT(growth(), ElementsAre(nullptr, nullptr, nullptr)) << "what was read a moment ago";
  clock_.Advance(HistoryPlace::kFresh);
  EXPECT_THAT(growth(), ElementsAre(500, 0, 120));
  place_ = nullptr;
  EXPECT_THAT(growth(), ElementsAre(nullptr, nullptr, nullptr));
}

// The axis of a timeline is what was asked for, also where nothing is known.
TEST_F(ApiHistoryTest, TheRangeIsSaid) {
  const double now = absl::ToDoubleSeconds(clock_.WallNow() - absl::UnixEpoch());
  const auto range = [&](std::multimap<std::string, std::string> parameters) {
    parameters.emplace("name", "shop");
    const nlohmann::json document = nlohmann::json::parse(Ask("/history.json", std::move(parameters)).body);
    return std::vector<nlohmann::json>{document["since"], document["until"]};
  };
  EXPECT_THAT(range({{"since", "-3600"}}), ElementsAre(now - 3600, now));
  EXPECT_THAT(range({{"since", "-3600"}, {"until", "-10"}}), ElementsAre(now - 3600, now - 10));
  EXPECT_THAT(range({}), ElementsAre(nullptr, now));
  EXPECT_THAT(range({{"at", "0"}}), ElementsAre(nullptr, nullptr));
}

// By the whole process; no path knows it.
TEST_F(ApiHistoryTest, WhatWasAllocatedInARange) {
  const std::unique_ptr<history::Writer> writer = Open();
  ASSERT_TRUE(writer->Begin().ok());
  const int64_t first = *writer->AddProcess(Process(50, "pair"));
  const int64_t second = *writer->AddProcess(Process(51, "pair"));
  const auto add = [&](int64_t process, int tenths, uint64_t allocated) {
    const history::Point point = {.live_bytes = 100, .allocated_bytes = allocated};
    ASSERT_TRUE(writer->AddPoint(process, history::kBegin + tenths * kInterval, point).ok());
  };
  add(first, 0, 1000);
  add(first, 1, 5000);
  add(first, 2, 5000);
  add(second, 2, 9000);
  ASSERT_TRUE(writer->Commit().ok());
  const auto subject = [&](const std::string& name, const std::string& value, const char* from, const char* at) {
    const http::Response response = Ask("/history/profile.json", {{name, value}, {"from", from}, {"at", at}});
    EXPECT_EQ(response.status, 200) << response.body;
    const nlohmann::json document = nlohmann::json::parse(response.body);
    EXPECT_EQ(document["subject"]["has_allocated"], false);
    return document["subject"].value("allocated_bytes", nlohmann::json());
  };
  EXPECT_EQ(subject("pid", "50", "-20", "-10"), 4000);
  EXPECT_EQ(subject("pid", "50", "-10", "0"), 0);
  EXPECT_EQ(subject("name", "pair", "-20", "-10"), 4000) << "one process";
  EXPECT_EQ(subject("name", "pair", "-20", "0"), nullptr) << "another one has come";
}

TEST_F(ApiHistoryTest, WithoutAHistory) {
  place_ = nullptr;
  EXPECT_EQ(Ask("/history.json", {}).status, 404);
  EXPECT_EQ(Ask("/history/profile.json", {{"name", "shop"}}).status, 404);
  EXPECT_EQ(Ask("/mark", {{"text", "x"}}, 0, "POST").status, 404);
  EXPECT_EQ(Ask("/growth.json", {}).status, 404);
}

}  // namespace
}  // namespace heaptap::api
