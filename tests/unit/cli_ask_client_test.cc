// SPDX-License-Identifier: Apache-2.0
//
// Tests the client and the commands with a fake daemon.
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/fake_daemon.h"
#include "tests/unit/reader.h"
#include "tests/unit/support/fake_clock.h"
#include "userspace/cli/ask/client.h"
#include "userspace/cli/ask/documents.h"
#include "userspace/cli/words/commands.h"
#include "userspace/cli/words/exit_status.h"
#include "userspace/profile/figures.h"

namespace heaptap::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr char kRedis[] = R"({"pid": 42, "process_id": 7, "owner": 1000, "command": "redis", "executable": "/bin/redis",
    "service": "redis-server", "control_group": "/system.slice/redis-server.service",
    "recorded_since": "2026-01-02T03:04:05.678Z", "live_bytes": 1572864.5, "live_objects": 12.25, "peak_bytes": 3145728, "allocated_bytes": 1e9, "allocated_objects": 1e6, "allocation_rate": 2048,
    "contexts": 5, "samples": 99, "lg_sample": 19, "active": false, "losses": {"ring-buffer": 3, "stacks": 4},
    "allocator": "guest over jemalloc 5.3.0"})";

std::string Processes(absl::string_view list) {
  return absl::StrCat(R"({"schema_version": 1, "processes": [)", list, "]}");
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

class ClientTest : public testing::Test {
 protected:
  ClientTest() : socket_(folder_.Path("socket")), daemon_(std::make_unique<FakeDaemon>(socket_)) {}

  // Runs a command as main does, with --socket.
  int Run(std::vector<std::string> words) {
    CommandLine line;
    AddList(line);
    AddDump(line);
    AddActive(line);
    AddRate(line);
    AddStats(line);
    AddDiff(line);
    AddTop(line);
    words.insert(words.end(), {"--socket", socket_});
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int status = line.Run(words);
    fflush(stdout);
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return status;
  }

  // A failure prints one line of printable text.
  void ExpectOneLine() const { EXPECT_THAT(err_, MatchesRegex("heaptap: [ -~]+\n")); }

  Reader folder_;
  std::string socket_;
  std::unique_ptr<FakeDaemon> daemon_;
  std::string out_;
  std::string err_;
};

// The command in the message works when it is copied.
TEST_F(ClientTest, AProcessThatIsNotRecorded) {
  daemon_->Answer("GET /processes.json", {Http(200, Processes(kRedis))});
  EXPECT_EQ(GetProcess(Client(socket_), 43).status(),
            absl::NotFoundError(absl::StrCat("process 43 is not recorded; heaptap list --socket ", socket_,
                                             " shows the recorded ones")));
}

TEST_F(ClientTest, ReadsProcesses) {
  daemon_->Answer("GET /processes.json", {Http(200, Processes(kRedis))});
  const absl::StatusOr<std::vector<ProcessDocument>> processes = GetProcesses(Client(socket_));
  ASSERT_TRUE(processes.ok()) << processes.status();
  ASSERT_THAT(*processes, SizeIs(1));
  const profile::ProcessSummary& redis = (*processes)[0].value;
  EXPECT_EQ(redis.pid, 42);
  EXPECT_EQ(redis.process_id, 7);
  EXPECT_EQ(redis.owner, 1000);
  EXPECT_EQ(redis.command, "redis");
  EXPECT_EQ(redis.executable, "/bin/redis");
  EXPECT_EQ(absl::ToUnixMillis(redis.recorded_since), 1767323045678);
  EXPECT_EQ(redis.live_bytes, 1572864.5);
  EXPECT_EQ(redis.live_objects, 12.25);
  EXPECT_EQ(redis.peak_bytes, 3145728);
  EXPECT_EQ(redis.allocated_bytes, 1e9);
  EXPECT_EQ(redis.allocated_objects, 1e6);
  EXPECT_EQ(redis.allocation_rate, 2048);
  EXPECT_EQ(redis.service, "redis-server");
  EXPECT_EQ(redis.control_group, "/system.slice/redis-server.service");
  EXPECT_EQ(redis.contexts, 5);
  EXPECT_EQ(redis.samples, 99);
  EXPECT_EQ(redis.lg_sample, 19);
  EXPECT_EQ(redis.losses, (profile::CountsByName{{"ring-buffer", 3}, {"stacks", 4}}));
}

TEST_F(ClientTest, ReadsWhatTheDaemonSaysOfItself) {
  const std::string failing = R"({"schema_version": 1, "processes": [], "restricted": false,
      "failing": [{"task": "history", "since": "2026-01-02T03:04:05.678+00:00"}]})";
  daemon_->Answer("GET /processes.json", {Http(200, failing)});
  DaemonState state;
  ASSERT_TRUE(GetProcesses(Client(socket_), &state).ok());
  EXPECT_FALSE(state.is_restricted);
  EXPECT_THAT(state.failing, ElementsAre(Pair("history", absl::FromUnixMillis(1767323045678))));
  EXPECT_EQ(Run({"list"}), kSuccess);
  EXPECT_THAT(
      err_, ContainsRegex("heaptap: the daemon fails at a task for [0-9]+d[0-9]+h \\(history\\); its log says why\n"));
  EXPECT_EQ(Run({"list", "--json"}), kSuccess);
  EXPECT_THAT(out_, HasSubstr("\"task\": \"history\""));
  daemon_->Answer("GET /processes.json", {Http(200, Processes(""))});
  DaemonState of_older;
  ASSERT_TRUE(GetProcesses(Client(socket_), &of_older).ok());
  EXPECT_TRUE(of_older.is_restricted);
  EXPECT_THAT(of_older.failing, SizeIs(0));
}

TEST_F(ClientTest, FieldsOfNewerDaemonsMayBeMissing) {
  const std::string old = absl::StrReplaceAll(
      kRedis, {{R"("service": "redis-server", "control_group": "/system.slice/redis-server.service",)", ""}});
  const std::string without = absl::StrReplaceAll(kRedis, {{R"("redis-server")", "null"}});
  daemon_->Answer("GET /processes.json", {Http(200, Processes(absl::StrCat(old, ",", without)))});
  const absl::StatusOr<std::vector<ProcessDocument>> processes = GetProcesses(Client(socket_));
  ASSERT_TRUE(processes.ok()) << processes.status();
  ASSERT_THAT(*processes, SizeIs(2));
  EXPECT_EQ((*processes)[0].value.service, std::nullopt);
  EXPECT_EQ((*processes)[0].value.control_group, std::nullopt);
  EXPECT_EQ((*processes)[1].value.service, std::nullopt);
  EXPECT_EQ((*processes)[1].value.control_group, "/system.slice/redis-server.service");
}

TEST_F(ClientTest, ReadsChunks) {
  std::string chunks;
  for (int i = 0; i < 10000; i++) chunks.append("a\r\n0123456789\r\n");
  daemon_->Answer("GET /pid/42/heap",
                  {absl::StrCat("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunks, "0\r\n\r\n")});
  const absl::StatusOr<std::string> dump = Client(socket_).GetDump("/pid/42/heap");
  ASSERT_TRUE(dump.ok()) << dump.status();
  EXPECT_EQ(dump->size(), 100000);
  EXPECT_TRUE(absl::IsNotFound(Client(socket_).GetDump("/none").status()));
}

TEST_F(ClientTest, NoDaemon) {
  for (const std::string& path : {folder_.Path("none"), folder_.Path("none/socket"), folder_.Write("file", "")}) {
    const absl::Status status = Client(path).GetJson("/processes.json").status();
    EXPECT_TRUE(IsNoDaemon(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(path), HasSubstr("heaptap daemon"), HasSubstr("--socket")));
  }
  daemon_.reset();
  EXPECT_TRUE(IsNoDaemon(Client(socket_).GetJson("/processes.json").status())) << "the socket of one that has ended";
  const absl::Status too_long = Client(std::string(200, 'x')).GetJson("/processes.json").status();
  EXPECT_TRUE(absl::IsInvalidArgument(too_long)) << too_long;
  EXPECT_FALSE(IsNoDaemon(absl::UnavailableError("x")));
}

TEST_F(ClientTest, Refusals) {
  const std::pair<int, absl::StatusCode> kCodes[] = {
      {400, absl::StatusCode::kInvalidArgument}, {403, absl::StatusCode::kPermissionDenied},
      {404, absl::StatusCode::kNotFound},        {409, absl::StatusCode::kFailedPrecondition},
      {500, absl::StatusCode::kInternal},        {503, absl::StatusCode::kUnavailable},
      {301, absl::StatusCode::kInternal}};
  for (const auto& [number, code] : kCodes) {
    daemon_->Answer("GET /a", {Http(number, R"({"error": "because\u001b[2J"})"), Http(number, "<html>")});
    const absl::Status status = Client(socket_).GetJson("/a").status();
    EXPECT_EQ(status, absl::Status(code, "because?[2J"));
    EXPECT_FALSE(IsNoDaemon(status));
    EXPECT_THAT(std::string(Client(socket_).GetJson("/a").status().message()), HasSubstr(absl::StrCat(number)));
  }
  // An answer without a body, whatever its headers say.
  daemon_->Answer("GET /a", {Http(100, "{}")});
  EXPECT_TRUE(absl::IsInternal(Client(socket_).GetJson("/a").status()));
}

std::string NoTime(int seconds) {
  const std::string body = R"({"error": "user 7 has used up the time for profiles"})";
  return absl::StrCat("HTTP/1.1 429 x\r\nRetry-After: ", seconds, "\r\nContent-Length: ", body.size(), "\r\n\r\n",
                      body);
}

TEST_F(ClientTest, WaitsUntilTheDaemonHasTime) {
  FakeClock clock;
  daemon_->Answer("GET /a", {NoTime(3), NoTime(7), Http(200, "done")});
  std::thread waiter([&] { EXPECT_EQ(*Client(socket_).GetDump("/a"), "done"); });
  clock.AwaitWaiter(absl::Seconds(3));
  clock.Advance(absl::Seconds(3));
  clock.AwaitWaiter(absl::Seconds(7));
  clock.Advance(absl::Seconds(7));
  waiter.join();
}

TEST_F(ClientTest, WaitsNoLongerThanItsPatience) {
  FakeClock clock;
  daemon_->Answer("GET /a", {NoTime(11)});
  const absl::Status status = Client(socket_).GetDump("/a").status();
  EXPECT_EQ(status, absl::ResourceExhaustedError("user 7 has used up the time for profiles"));
  EXPECT_EQ(Report(status), kFailure);
  // A daemon that names no time.
  daemon_->Answer("GET /b", {NoTime(0)});
  EXPECT_TRUE(absl::IsResourceExhausted(Client(socket_).GetDump("/b").status()));
}

TEST_F(ClientTest, SizesAreBounded) {
  ClientLimits limits;
  limits.json_bytes = 1000;
  limits.dump_bytes = 2000;
  const Client client(socket_, limits);
  daemon_->Answer("GET /a", {Http(200, std::string(1001, ' '))});
  EXPECT_TRUE(absl::IsResourceExhausted(client.GetJson("/a").status()));
  EXPECT_TRUE(client.GetDump("/a").ok());
  daemon_->AppendForEver(std::string(100000, 'x'));
  daemon_->Answer("GET /b", {"HTTP/1.1 200 OK\r\n\r\n"});
  EXPECT_TRUE(absl::IsResourceExhausted(client.GetDump("/b").status()));
  daemon_->Answer("GET /c", {"HTTP/1.1 200 OK\r\n"});
  EXPECT_TRUE(absl::IsDataLoss(client.GetDump("/c").status()));
}

TEST_F(ClientTest, TimeIsBounded) {
  ClientLimits limits;
  limits.answer = absl::Milliseconds(100);
  daemon_->StayOpen();
  for (const char* bytes : {"", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"}) {
    daemon_->Answer("GET /a", {bytes});
    const absl::Status status = Client(socket_, limits).GetDump("/a").status();
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  }
  daemon_->Answer("GET /a", {Http(200, "hello")});
  EXPECT_TRUE(Client(socket_).GetDump("/a").ok()) << "does not wait for the end of the connection";
}

TEST_F(ClientTest, WhatIsNoDocument) {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  for (const std::string& body :
       {std::string(""), std::string("x"), std::string("[]"), std::string("{}"), std::string("null"), deep,
        absl::StrCat(R"({"schema_version": 1, "processes": )", deep, "}"), std::string(R"({"schema_version": 2})"),
        std::string(R"({"schema_version": "1"})"), std::string(R"({"schema_version": 1})"),
        std::string(R"({"schema_version": 1, "processes": {}})"), std::string("{\"schema_version\": 1, \"\xff\": 1}"),
        Processes("null"), Processes("{}"), Processes("[]"), Processes("{").substr(0, 20)}) {
    daemon_->Answer("GET /processes.json", {Http(200, body)});
    EXPECT_EQ(Run({"list"}), kFailure) << body.substr(0, 100);
    EXPECT_EQ(out_, "");
    ExpectOneLine();
    EXPECT_THAT(err_, HasSubstr("not as expected"));
  }
}

TEST_F(ClientTest, FieldsThatAreNotAsExpected) {
  const std::pair<const char*, const char*> kChanges[] = {
      {R"("pid": 42)", R"("pid": -42)"},
      {R"("pid": 42)", R"("pid": 0)"},
      {R"("pid": 42)", R"("pid": 4294967297)"},
      {R"("pid": 42)", R"("pid": "42")"},
      {R"("pid": 42)", R"("pid": 42.5)"},
      {R"("owner": 1000)", R"("owner": -1)"},
      {R"("command": "redis")", R"("command": ["redis"])"},
      {R"("command": "redis",)", ""},
      {R"("contexts": 5)", R"("contexts": 1e400)"},
      {R"("contexts": 5)", R"("contexts": 99999999999999999999)"},
      {R"("lg_sample": 19)", R"("lg_sample": 4294967296)"},
      {R"("live_bytes": 1572864.5)", R"("live_bytes": "much")"},
      {R"("live_bytes": 1572864.5)", R"("live_bytes": null)"},
      {"2026-01-02T03:04:05.678Z", "yesterday"},
      {R"("losses": {"ring-buffer": 3, "stacks": 4})", R"("losses": [])"},
      {R"("ring-buffer": 3)", R"("ring-buffer": -3)"},
  };
  for (const auto& [from, to] : kChanges) {
    const std::string changed = absl::StrReplaceAll(kRedis, {{from, to}});
    ASSERT_NE(changed, kRedis) << from;
    daemon_->Answer("GET /processes.json", {Http(200, Processes(changed))});
    EXPECT_EQ(Run({"list"}), kFailure) << to;
    EXPECT_EQ(out_, "");
    ExpectOneLine();
  }
}

TEST_F(ClientTest, List) {
  const std::string small = absl::StrReplaceAll(kRedis, {{"42", "5"},
                                                         {"redis", "\\u001b]0;x"},
                                                         {"1572864.5", "10"},
                                                         {"\"active\": false, ", ""},
                                                         {"over jemalloc 5.3.0", "\\u001b -"},
                                                         {R"({"ring-buffer": 3, "stacks": 4})", "{}"}});
  daemon_->Answer("GET /processes.json", {Http(200, Processes(absl::StrCat(small, ",", kRedis)))});
  EXPECT_EQ(Run({"list"}), kSuccess);
  EXPECT_EQ(err_, "");
  EXPECT_THAT(out_,
              MatchesRegex(
                  "PID  COMMAND +UPTIME +LIVE +RSS +PEAK +RATE/s +CONTEXTS +SAMPLES +LG +ACTIVE +LOSSES +ALLOCATOR\n"
                  " 42  redis +[^ ]+ +1.5M +[^ ]+ +3.0M +2.0K +5 +99 +19 +off +7 .ring-buffer 3, stacks 4.  guest over "
                  "jemalloc 5.3.0\n"
                  "  5  .]0;x +[^ ]+ +10 +[^ ]+ +3.0M +2.0K +5 +99 +19 +- +0 +guest .033 -\n"));
  EXPECT_EQ(Run({"list", "--json"}), kSuccess);
  const auto document = nlohmann::json::parse(out_);
  EXPECT_EQ(document["schema_version"], 1);
  EXPECT_EQ(document["processes"][1], nlohmann::json::parse(kRedis));
  EXPECT_THAT(out_, Not(HasSubstr("\x1b")));
  daemon_->Answer("GET /processes.json", {Http(200, Processes(""))});
  EXPECT_EQ(Run({"list"}), kSuccess);
  EXPECT_THAT(out_, MatchesRegex("PID[^\n]+\n"));
}

constexpr char kAllocator[] = R"({"schema_version": 1, "options": 3, "active": true, "lg_sample": 12, "statistics":
    {"mapped": 1048576, "active": 2048, "dirty": 4096, "large": 8192, "sampled_objects": 77, "foreign_frees": 1,
     "metadata": 0}})";

// Resident memory is known of processes that are there.
TEST_F(ClientTest, ResidentMemoryOfAProcess) {
  const std::string own = absl::StrReplaceAll(kRedis, {{R"("pid": 42)", absl::StrCat(R"("pid": )", getpid())}});
  const std::string gone = absl::StrReplaceAll(kRedis, {{R"("pid": 42)", R"("pid": 4194304)"}});
  daemon_->Answer("GET /processes.json", {Http(200, Processes(absl::StrCat(own, ",", gone)))});
  EXPECT_EQ(Run({"list"}), kSuccess);
  EXPECT_THAT(out_, ContainsRegex(absl::StrCat(getpid(), "  redis +[^ ]+ +1.5M +[0-9.]+[KMG] +3.0M")));
  EXPECT_THAT(out_, ContainsRegex("4194304  redis +[^ ]+ +1.5M +- +3.0M"));
  daemon_->Answer(absl::StrCat("GET /pid/", getpid(), "/allocator.json"), {Http(200, kAllocator)});
  EXPECT_EQ(Run({"stats", absl::StrCat(getpid())}), kSuccess);
  EXPECT_THAT(out_, ContainsRegex("\nresident +[0-9.]+[KMG]\n"));
}

TEST_F(ClientTest, TopOnceHasTheGrowthOfTheHistory) {
  daemon_->Answer("GET /processes.json", {Http(200, Processes(kRedis))});
  EXPECT_EQ(Run({"top", "--once"}), kSuccess) << err_;
  EXPECT_THAT(out_, ContainsRegex("42 redis +1.5M +- "));
  nlohmann::json growing = nlohmann::json::parse(kRedis);
  growing["growth_per_minute"] = 2 << 20;
  growing["growth_error"] = 2000000;
  growing["growth_seconds"] = 30;
  daemon_->Answer("GET /processes.json", {Http(200, Processes(growing.dump()))});
  EXPECT_EQ(Run({"top", "--once"}), kSuccess) << err_;
  EXPECT_THAT(out_, HasSubstr(" +2.0M~ "));
}

TEST_F(ClientTest, ListEnded) {
  const auto ended = [](absl::string_view rest) {
    return Http(200, absl::StrCat(R"({"schema_version": 1, "ended": [)", absl::StripSuffix(kRedis, "}"),
                                  R"(, "ended": "2026-01-02T03:04:05Z", )", rest, "}]}"));
  };
  daemon_->Answer("GET /ended.json", {ended(R"("status": 9, "by_oom_kill": true, "dump": "/var/x.heap")"),
                                      ended(R"("status": 11, "by_oom_kill": false, "dump": "")"),
                                      ended(R"("status": 768, "by_oom_kill": false, "dump": "")"),
                                      ended(R"("status": 768, "by_oom_kill": 1, "dump": "")")});
  EXPECT_EQ(Run({"list", "--ended"}), kSuccess);
  EXPECT_THAT(out_, AllOf(HasSubstr("OOM kill"), HasSubstr("  /var/x.heap\n"), HasSubstr("redis")));
  EXPECT_EQ(Run({"list", "--ended"}), kSuccess);
  EXPECT_THAT(out_, AllOf(HasSubstr("signal 11"), HasSubstr("  -\n")));
  EXPECT_EQ(Run({"list", "--ended"}), kSuccess);
  EXPECT_THAT(out_, HasSubstr("exit 3"));
  EXPECT_EQ(Run({"list", "--ended"}), kFailure);
  EXPECT_THAT(err_, HasSubstr("ended[0].by_oom_kill"));
  const std::string flat = absl::StrReplaceAll(
      kRedis, {{R"("pid": 42)", R"("ended": "2026-01-02T03:04:05Z", "status": 9, "by_oom_kill": false, "dump": "",
                                 "pid": 42)"}});
  daemon_->Answer("GET /ended.json", {Http(200, absl::StrCat(R"({"schema_version": 1, "ended": [)", flat, "]}"))});
  EXPECT_EQ(Run({"list", "--ended"}), kSuccess) << err_;
  EXPECT_THAT(out_, AllOf(HasSubstr("42  redis"), HasSubstr("signal 9")));
}

TEST_F(ClientTest, DumpByTheDaemon) {
  daemon_->Answer("POST /pid/42/dump", {Http(200, R"({"path": "/var/lib/heaptap/a\nb.heap"})")});
  EXPECT_EQ(Run({"dump", "42"}), kSuccess);
  EXPECT_EQ(out_, "/var/lib/heaptap/a\\012b.heap\n");
  EXPECT_EQ(Run({"dump", "42", "43"}), kNoTarget);
  EXPECT_EQ(out_, "/var/lib/heaptap/a\\012b.heap\n") << "one that fails does not keep back the others";
  EXPECT_EQ(Run({"dump", "43"}), kNoTarget);
  ExpectOneLine();
  daemon_->Answer("POST /pid/42/dump", {Http(200, "{}")});
  EXPECT_EQ(Run({"dump", "42"}), kFailure);
  ExpectOneLine();
}

TEST_F(ClientTest, DumpAll) {
  daemon_->Answer("POST /dump",
                  {Http(200, R"({"dumps": [{"pid": 1, "path": "/a"}, {"pid": 2, "path": "/b"}]})"),
                   Http(200, R"({"dumps": [{"pid": 1, "path": "/a"}, {"pid": 2, "error": "2 is gone\n"}]})"),
                   Http(200, R"({"dumps": []})"), Http(200, R"({"dumps": [{"pid": 1}]})")});
  EXPECT_EQ(Run({"dump", "--all"}), kSuccess);
  EXPECT_EQ(out_, "/a\n/b\n");
  EXPECT_EQ(Run({"dump", "--all"}), kFailure);
  EXPECT_EQ(out_, "/a\n");
  EXPECT_EQ(err_, "heaptap: 2 is gone?\n");
  EXPECT_EQ(Run({"dump", "--all"}), kNoTarget);
  EXPECT_EQ(Run({"dump", "--all"}), kFailure);
}

TEST_F(ClientTest, DumpToAFile) {
  const std::string file = folder_.Path("dump");
  daemon_->Answer("GET /pid/42/heap?format=collapsed", {Http(200, "main 1\n")});
  daemon_->Answer("GET /pid/42/heap", {Http(200, "heap_v2/1\n")});
  EXPECT_EQ(Run({"dump", "42", "-o", file, "--format", "collapsed"}), kSuccess) << err_;
  EXPECT_EQ(ReadFile(file), "main 1\n");
  struct stat status;
  ASSERT_EQ(stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600);
  EXPECT_EQ(Run({"dump", "42", "-o", file}), kSuccess) << "replaces";
  EXPECT_EQ(ReadFile(file), "heap_v2/1\n");
  EXPECT_EQ(Run({"dump", "42", "-o", "-"}), kSuccess);
  EXPECT_EQ(out_, "heap_v2/1\n");
  daemon_->Answer("GET /processes.json", {Http(200, Processes(kRedis))});
  EXPECT_EQ(Run({"dump", "--all", "-o", folder_.Path("all.%p")}), kSuccess);
  EXPECT_EQ(ReadFile(folder_.Path("all.42")), "heap_v2/1\n");
}

TEST_F(ClientTest, DumpLeavesNothingHalf) {
  const std::string file = folder_.Write("dump", "old");
  const std::string whole = Http(200, std::string(1000, 'x'));
  daemon_->Answer("GET /pid/42/heap", {whole.substr(0, 500), Http(200, ""), Http(404, "x")});
  EXPECT_EQ(Run({"dump", "42", "-o", file}), kFailure);
  ExpectOneLine();
  EXPECT_EQ(Run({"dump", "42", "-o", file}), kFailure);
  ExpectOneLine();
  EXPECT_EQ(Run({"dump", "42", "-o", file}), kNoTarget);
  EXPECT_EQ(ReadFile(file), "old");

  daemon_->Answer("GET /pid/42/heap", {whole});
  const std::string link = folder_.Path("link");
  fs::create_symlink(file, link);
  fs::create_directory(folder_.Path("folder"));
  for (const std::string& path : {std::string("/dev/full"), folder_.Path("folder"), link, folder_.Path("none/x")}) {
    EXPECT_EQ(Run({"dump", "42", "-o", path}), kFailure) << path;
    ExpectOneLine();
  }
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  EXPECT_EQ(ReadFile(file), "old");
  size_t files = 0;
  for ([[maybe_unused]] const fs::directory_entry& entry : fs::directory_iterator(folder_.Path(""))) files++;
  EXPECT_EQ(files, 4) << "dump, folder, link, socket";
}

TEST_F(ClientTest, DumpIsAskedForWrongly) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"dump"},
                                             {"dump", "--all", "1"},
                                             {"dump", "0"},
                                             {"dump", "1.5"},
                                             {"dump", "1", "2", "-o", "x"},
                                             {"dump", "1", "2", "-o", "-"},
                                             {"dump", "--all", "-o", "x"},
                                             {"dump", "1", "--format", "pprof"},
                                             {"dump", "1", "-o", "x", "--format", "pdf"}}) {
    EXPECT_EQ(Run(words), kUsage);
  }
  EXPECT_THAT(daemon_->requests(), SizeIs(0));
}

TEST_F(ClientTest, Orders) {
  daemon_->Answer("POST /pid/42/active?value=off", {Http(200, "")});
  daemon_->Answer("POST /pid/42/rate?lg=12", {Http(200, "{}")});
  daemon_->Answer("POST /pid/42/rate?lg=default", {Http(409, R"({"error": "no control block"})")});
  EXPECT_EQ(Run({"active", "42", "off"}), kSuccess) << err_;
  EXPECT_THAT(out_, HasSubstr("are not recorded until heaptap active 42 on"));
  EXPECT_EQ(Run({"rate", "42", "12"}), kSuccess) << err_;
  EXPECT_EQ(Run({"rate", "42", "default"}), kFailure);
  EXPECT_EQ(err_, "heaptap: no control block\n");
  EXPECT_EQ(Run({"active", "43", "on"}), kNoTarget);
  EXPECT_THAT(daemon_->requests(), ElementsAre("POST /pid/42/active?value=off", "POST /pid/42/rate?lg=12",
                                               "POST /pid/42/rate?lg=default", "POST /pid/43/active?value=on"));
  for (const char* rate : {"64", "-1", "x", "1.5", "", "4294967296"})
    EXPECT_EQ(Run({"rate", "42", rate}), kUsage) << rate;
  for (const char* value : {"true", "", "On"}) EXPECT_EQ(Run({"active", "42", value}), kUsage) << value;
  EXPECT_THAT(daemon_->requests(), SizeIs(4));
}

TEST_F(ClientTest, Stats) {
  daemon_->Answer("GET /processes.json", {Http(200, Processes(kRedis))});
  daemon_->Answer("GET /pid/42/allocator.json", {Http(200, kAllocator)});
  EXPECT_EQ(Run({"stats", "42"}), kSuccess) << err_;
  for (const char* line :
       {"\ncommand          redis\n", "\nexecutable       /bin/redis\n", "\nlive             1.5M in 12 objects\n",
        "\nlosses           7 (ring-buffer 3, stacks 4)\n", "\nprof.active      on\n",
        "\nlg_sample        12 (a sample every 4.0K bytes)\n", "\noptions          prof prof_active\n",
        "\nmapped           1.0M (address space from the kernel)\n",
        "\nin use           2.0K (pages with a block in use; ", "\nsampled objects  77\n", "\nforeign frees    1\n"}) {
    EXPECT_THAT(out_, HasSubstr(line));
  }
  EXPECT_EQ(Run({"stats", "42", "--json"}), kSuccess);
  const auto document = nlohmann::json::parse(out_);
  EXPECT_EQ(document["process"], nlohmann::json::parse(kRedis));
  EXPECT_EQ(document["allocator"]["statistics"]["dirty"], 4096);
  EXPECT_EQ(Run({"stats", "43"}), kNoTarget);
}

TEST_F(ClientTest, StatsOfAGuest) {
  daemon_->Answer("GET /processes.json", {Http(200, Processes(kRedis))});
  daemon_->Answer("GET /pid/42/allocator.json",
                  {Http(200, R"({"schema_version": 1, "name": "guest over \u001bmalloc", "options": 3, "active": true,
                                 "lg_sample": 12, "statistics": null})")});
  EXPECT_EQ(Run({"stats", "42"}), kSuccess) << err_;
  EXPECT_THAT(out_, AllOf(HasSubstr("\nallocator        guest over \\033malloc\n"), Not(HasSubstr("mapped")),
                          HasSubstr("\nstatistics       known to the host only\n")));
}

TEST_F(ClientTest, StatsWithoutAControlBlock) {
  daemon_->Answer("GET /processes.json", {Http(200, Processes(kRedis))});
  daemon_->Answer("GET /pid/42/allocator.json", {Http(409, R"({"error": "none"})")});
  EXPECT_EQ(Run({"stats", "42"}), kSuccess);
  EXPECT_THAT(out_, AllOf(HasSubstr("lg_sample        19"), Not(HasSubstr("mapped"))));
  EXPECT_EQ(Run({"stats", "42", "--json"}), kSuccess);
  EXPECT_TRUE(nlohmann::json::parse(out_)["allocator"].is_null());
  daemon_->Answer("GET /pid/42/allocator.json",
                  {Http(200, R"({"schema_version": 1, "options": 3, "active": true, "lg_sample": 12})")});
  EXPECT_EQ(Run({"stats", "42"}), kFailure);
  EXPECT_THAT(err_, HasSubstr("statistics is missing"));
}

TEST_F(ClientTest, ResidentMemory) {
  const Client client(socket_);
  const std::string target = "GET /pid/42/resident.json";
  daemon_->Answer(target, {Http(200, R"({"schema_version": 1, "anonymous": 4000, "files": 300, "shared": 20,
                                        "stacks": 1})")});
  const absl::StatusOr<profile::ResidentBytes> resident = GetResident(client, 42);
  ASSERT_TRUE(resident.ok()) << resident.status();
  EXPECT_THAT((std::vector{resident->anonymous, resident->files, resident->shared, resident->stacks}),
              ElementsAre(4000, 300, 20, 1));
  for (const char* wrong : {R"({"schema_version": 1, "anonymous": -1, "files": 3, "shared": 2, "stacks": 1})",
                            R"({"schema_version": 1, "anonymous": 4, "files": 3, "shared": 2})", "[]"}) {
    daemon_->Answer(target, {Http(200, wrong)});
    EXPECT_EQ(GetResident(client, 42).status().code(), absl::StatusCode::kDataLoss) << wrong;
  }
  EXPECT_TRUE(absl::IsNotFound(GetResident(client, 43).status()));
}

std::string Dump(int objects) {
  const std::string counts = absl::StrCat("  t*: ", objects, ": ", objects * 100, " [0: 0]\n");
  return absl::StrCat("heap_v2/1\n", counts, "@ 0x1000 0x2001\n", counts);
}

TEST_F(ClientTest, DiffOfAProcess) {
  daemon_->Answer("GET /processes.json", {Http(200, Processes(kRedis))});
  daemon_->Answer("GET /pid/42/heap?format=heap_v2", {Http(200, Dump(10)), Http(200, Dump(30))});
  EXPECT_EQ(Run({"diff", "42", "--seconds", "0.001"}), kSuccess) << err_;
  EXPECT_THAT(out_, AllOf(HasSubstr("redis (PID 42) in 0s\n"),
                          HasSubstr("+2.0K in +20 objects: 1000 in 10 objects before, 2.9K in 30 objects after"),
                          HasSubstr("   1. +2.0K, +20 objects, 40 samples changed\n"), HasSubstr(" 0x1000\n"),
                          HasSubstr(" 0x2000\n")));
  daemon_->Answer("GET /pid/42/heap?format=heap_v2", {Http(200, "hello")});
  EXPECT_EQ(Run({"diff", "42", "--seconds", "0.001"}), kFailure);
  ExpectOneLine();
  EXPECT_EQ(Run({"diff", "43"}), kNoTarget);
}

TEST_F(ClientTest, DiffOfTwoProcessesWithOnePid) {
  daemon_->Answer("GET /processes.json",
                  {Http(200, Processes(kRedis)),
                   Http(200, Processes(absl::StrReplaceAll(kRedis, {{R"("process_id": 7)", R"("process_id": 8)"}})))});
  daemon_->Answer("GET /pid/42/heap?format=heap_v2", {Http(200, Dump(10))});
  EXPECT_EQ(Run({"diff", "42", "--seconds", "0.001"}), kFailure);
  EXPECT_EQ(out_, "");
  ExpectOneLine();
}

TEST_F(ClientTest, DiffOfFiles) {
  const std::string before = folder_.Write("before", Dump(10));
  const std::string after = folder_.Write("after", Dump(30));
  EXPECT_EQ(Run({"diff", before, after, "--json"}), kSuccess) << err_;
  const auto document = nlohmann::json::parse(out_);
  EXPECT_EQ(document["difference"], (nlohmann::json{{"bytes", 2000}, {"objects", 20}}));
  EXPECT_EQ(document["call_paths"][0]["frames"][0]["address"], "0x1000");
  EXPECT_EQ(document["call_paths"][0]["frames"][1]["address"], "0x2000");
  for (const std::string& bad : {folder_.Path("none"), folder_.Path(""), folder_.Write("bad", "x\n")}) {
    EXPECT_EQ(Run({"diff", before, bad}), kFailure) << bad;
    EXPECT_EQ(out_, "");
    ExpectOneLine();
  }
  EXPECT_EQ(Run({"diff", before}), kUsage);
  EXPECT_EQ(Run({"diff", "-1"}), kUsage);
  EXPECT_EQ(Run({"diff", before, after, "--seconds", "1"}), kUsage);
  EXPECT_EQ(Run({"diff", before, after, "--top", "-1"}), kUsage);
}

TEST_F(ClientTest, WithoutADaemon) {
  daemon_.reset();
  fs::remove(socket_);
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"list", "--ended"}, {"dump", "1"}, {"dump", "--all"}, {"dump", "1", "-o", "-"}, {"diff", "1"}}) {
    EXPECT_EQ(Run(words), kFailure) << words[0];
    EXPECT_EQ(out_, "");
    ExpectOneLine();
    EXPECT_THAT(err_, HasSubstr("heaptap daemon"));
    EXPECT_EQ(err_.find("heaptap attach -p PID") != std::string::npos, words[0] == "dump");
  }
  // We ourselves have no sampled allocator.
  const std::string self = absl::StrCat(getpid());
  EXPECT_EQ(Run({"stats", self}), kNoTarget) << err_;
  EXPECT_EQ(Run({"active", self, "on"}), kNoTarget) << err_;
  EXPECT_EQ(Run({"rate", self, "1"}), kNoTarget) << err_;
}

}  // namespace
}  // namespace heaptap::cli
