// SPDX-License-Identifier: Apache-2.0
//
// Tests the answer of each page.
#include <unistd.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/http_client.h"
#include "userspace/formats/collapsed.h"
#include "userspace/formats/gperftools_heap.h"
#include "userspace/formats/growth_heap.h"
#include "userspace/formats/heap_v2.h"

namespace heaptap::api {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class HttpEndpointsTest : public ServerTest {
 protected:
  HttpEndpointsTest() { AddProcess(collector_, 42, 0, "program", 4096); }
  void SetUp() override { Start(); }

  void AddAnother() { AddProcess(collector_, 43, 1000, "oth\ner", 100); }
  const profile::Profile& profile() { return collector_.snapshots[42].profile; }
};

// --- libmtev ---

TEST_F(HttpEndpointsTest, MtevHeapProfile) {
  const Answered answer = Get("/mtev/heap_profile");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.Header("Content-Type"), "text/plain");
  EXPECT_EQ(answer.body, "opt.prof: true\nprof.active: true\nprof.thread_active_init: true\n");
  collector_.allocators[42].active = false;
  EXPECT_EQ(Get("/pid/42/mtev/heap_profile").body,
            "opt.prof: true\nprof.active: false\nprof.thread_active_init: true\n");
}

TEST_F(HttpEndpointsTest, MtevSwitch) {
  const Answered on = Get("/mtev/heap_profile?active=true");
  EXPECT_EQ(on.status, 200);
  EXPECT_EQ(on.Header("Content-Type"), "text/plain");
  EXPECT_EQ(on.body, "Profiling is activated\n");
  EXPECT_EQ(Get("/mtev/heap_profile?active=false").body, "Profiling is deactivated\n");
  EXPECT_EQ(Get("/mtev/heap_profile?active=1").body, "Profiling is deactivated\n");
  EXPECT_EQ(Get("/mtev/heap_profile?active=True").body, "Profiling is deactivated\n");
  EXPECT_EQ(Get("/mtev/heap_profile?active").body, "Profiling is deactivated\n");
  EXPECT_EQ(Get("/mtev/heap_profile?trigger_dump=true&active=true").body, "Profiling is activated\n");
  EXPECT_THAT(collector_.Deeds(), ElementsAre("active 42 on", "active 42 off", "active 42 off", "active 42 off",
                                              "active 42 off", "active 42 on"));
}

TEST_F(HttpEndpointsTest, MtevDump) {
  const Answered answer = Get("/mtev/heap_profile?trigger_dump=true");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.Header("Content-Type"), "application/x-jemalloc-heap-profile");
  EXPECT_EQ(answer.body, formats::HeapV2(profile()));
  EXPECT_THAT(Get("/mtev/heap_profile?trigger_dump=yes").body, StartsWith("opt.prof: "));
}

TEST_F(HttpEndpointsTest, MtevWithoutControlBlock) {
  collector_.allocators.clear();
  for (const char* path : {"/mtev/heap_profile", "/mtev/heap_profile?active=true"}) {
    const Answered answer = Get(path);
    EXPECT_EQ(answer.status, 500);
    EXPECT_EQ(answer.Header("Content-Type"), "text/plain");
    EXPECT_EQ(answer.body, "libjemalloc is not loaded, cannot heap profile\n");
  }
  const Answered memory = Get("/mtev/memory.json");
  EXPECT_EQ(memory.status, 200);
  EXPECT_EQ(memory.Header("Content-Type"), "application/json");
  EXPECT_EQ(memory.body, "{}\n");
}

TEST_F(HttpEndpointsTest, MtevMemory) {
  const Answered answer = Get("/mtev/memory.json");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.Header("Content-Type"), "application/json");
  const json jemalloc = json::parse(answer.body)["jemalloc"];
  EXPECT_THAT(jemalloc["version"].get<std::string>(), StartsWith("5.3"));
  EXPECT_EQ(jemalloc["opt"]["prof"], true);
  EXPECT_EQ(jemalloc["prof"]["lg_sample"], 19);
  EXPECT_EQ(jemalloc["stats"]["allocated"], 4096);
  EXPECT_EQ(jemalloc["stats"]["active"], 200);
  EXPECT_EQ(jemalloc["stats"]["resident"], 250);
  EXPECT_EQ(jemalloc["stats"]["mapped"], 300);
  EXPECT_FALSE(jemalloc["stats"].contains("metadata")) << "only the process knows it";
}

TEST_F(HttpEndpointsTest, MtevMemoryOfHostileProcess) {
  collector_.allocators[42].statistics = heaptap_statistics{~uint64_t{0}, ~uint64_t{0}, 2, 0, 0, 0, 0};
  EXPECT_EQ(json::parse(Get("/mtev/memory.json").body)["jemalloc"]["stats"]["resident"], ~uint64_t{0});
}

// The host's figures are unknown, and heaptap's own are none of the program's memory.
TEST_F(HttpEndpointsTest, OfAGuest) {
  collector_.processes[0].allocator = "guest over jemalloc 5.3.0";
  collector_.allocators[42].name = "guest over jemalloc 5.3.0";
  collector_.allocators[42].statistics.reset();
  const json stats = json::parse(Get("/mtev/memory.json").body)["jemalloc"]["stats"];
  EXPECT_EQ(stats, json({{"allocated", 4096}}));
  const json allocator = json::parse(Get("/pid/42/allocator.json").body);
  EXPECT_EQ(allocator["name"], "guest over jemalloc 5.3.0");
  EXPECT_TRUE(allocator["statistics"].is_null());
  EXPECT_EQ(json::parse(Get("/processes.json").body)["processes"][0]["allocator"], "guest over jemalloc 5.3.0");
}

TEST_F(HttpEndpointsTest, MtevWithSeveralProcesses) {
  AddAnother();
  for (const char* path : {"/mtev/heap_profile", "/mtev/heap_profile?active=true", "/mtev/memory.json"}) {
    const Answered answer = Get(path);
    EXPECT_EQ(answer.status, 400);
    EXPECT_EQ(answer.Header("Content-Type"), "text/plain");
    EXPECT_EQ(answer.body, "several processes are recorded; choose one with ?pid=PID:\n42 program\n43 oth\\012er\n");
  }
  EXPECT_EQ(Get("/mtev/heap_profile?active=true&pid=43").body, "Profiling is activated\n");
  EXPECT_EQ(Get("/pid/42/mtev/heap_profile?active=no").body, "Profiling is deactivated\n");
  EXPECT_THAT(collector_.Deeds(), ElementsAre("active 43 on", "active 42 off"));
}

TEST_F(HttpEndpointsTest, MtevWithoutProcess) {
  collector_.processes.clear();
  EXPECT_EQ(Get("/mtev/heap_profile").status, 404);
  EXPECT_EQ(Get("/mtev/heap_profile").body, "no process is recorded\n");
  EXPECT_EQ(Get("/mtev/heap_profile?pid=42").body, "process 42 is not recorded\n");
}

TEST_F(HttpEndpointsTest, MtevIsGetOnly) {
  EXPECT_EQ(Ask("HEAD", "/mtev/heap_profile?active=false").status, 405);
  EXPECT_EQ(Post("/mtev/heap_profile?active=false").status, 405);
  EXPECT_EQ(Post("/mtev/heap_profile").Header("Allow"), "GET");
  EXPECT_THAT(collector_.Deeds(), IsEmpty());
}

// --- pprof ---

TEST_F(HttpEndpointsTest, PprofProfiles) {
  EXPECT_EQ(Get("/pid/42/pprof/heap").body, formats::HeapV2(profile()));
  EXPECT_EQ(Get("/pid/42/pprof/growth").body, formats::GrowthHeap(profile()));
  EXPECT_EQ(Get("/pprof/heap").body, formats::HeapV2(profile())) << "there is only one";
  EXPECT_EQ(Get("/pid/42/pprof/profile").status, 404);
  EXPECT_EQ(Get("/pid/42/pprof/profile?seconds=1").status, 404);
}

TEST_F(HttpEndpointsTest, PprofSymbol) {
  EXPECT_EQ(Get("/pid/42/pprof/symbol").body, "num_symbols: 1\n");
  const Answered head = Ask("HEAD", "/pid/42/pprof/symbol");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.body, "");
  EXPECT_EQ(Post("/pid/42/pprof/symbol", "0x0000000000001234+0xabc").body, "0x1234\t0x1234\n0xabc\t0xabc\n")
      << "nothing is mapped there";
  EXPECT_EQ(Post("/pid/42/pprof/symbol", "").body, "");
  EXPECT_EQ(Post("/pid/42/pprof/symbol", "main").status, 400);
  EXPECT_EQ(Post("/pid/42/pprof/symbol", "0x10000000000000000").status, 400);
  std::string many;
  for (int i = 0; i < (1 << 17); ++i) many.append("1+");
  EXPECT_EQ(Post("/pid/42/pprof/symbol", many).status, 200);
  EXPECT_EQ(Post("/pid/42/pprof/symbol", many + "1").status, 400);
}

TEST_F(HttpEndpointsTest, PprofCommandLine) {
  AddProcess(collector_, getpid(), 0, "me", 1);
  const std::string line = Get(absl::StrCat("/pid/", getpid(), "/pprof/cmdline")).body;
  EXPECT_THAT(line.substr(0, line.find('\0')), HasSubstr("unit_tests"));
  EXPECT_EQ(line.back() == '\0', false);
  AddProcess(collector_, 4194304, 0, "g\none", 1);  // no process has the highest number
  EXPECT_EQ(Get("/pid/4194304/pprof/cmdline").body, "g\\012one");
}

// --- Go ---

TEST_F(HttpEndpointsTest, GoProfiles) {
  for (const char* name : {"heap", "allocs"}) {
    const Answered answer = Get(absl::StrCat("/pid/42/debug/pprof/", name));
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.Header("Content-Type"), "application/octet-stream");
    EXPECT_EQ(answer.Header("Content-Disposition"), absl::StrCat("attachment; filename=\"", name, "\""));
    EXPECT_EQ(answer.Header("X-Content-Type-Options"), "nosniff");
    EXPECT_THAT(answer.body, StartsWith("\x1f\x8b")) << "gzip";
    EXPECT_EQ(Get(absl::StrCat("/debug/pprof/", name)).body, answer.body);
    EXPECT_EQ(Get(absl::StrCat("/debug/pprof/", name, "?pid=42")).body, answer.body);
  }
  EXPECT_NE(Get("/debug/pprof/heap").body, Get("/debug/pprof/allocs").body) << "they differ in the default value";
  const Answered text = Get("/debug/pprof/heap?debug=1");
  EXPECT_EQ(text.Header("Content-Type"), "text/plain; charset=utf-8");
  EXPECT_EQ(text.body, formats::GperftoolsHeap(profile()));
}

TEST_F(HttpEndpointsTest, GoErrors) {
  for (const char* seconds : {"0", "-1", "3601", "x", "", "1.5"}) {
    const Answered answer = Get(absl::StrCat("/debug/pprof/heap?seconds=", seconds));
    EXPECT_EQ(answer.status, 400) << seconds;
    EXPECT_EQ(answer.Header("X-Go-Pprof"), "1");
    EXPECT_EQ(answer.Header("Content-Type"), "text/plain");
    EXPECT_EQ(answer.body, "seconds must be a number from 1 to 3600\n");
  }
  EXPECT_EQ(Get("/pid/41/debug/pprof/heap").body, "process 41 is not recorded\n");
  EXPECT_EQ(Get("/pid/41/debug/pprof/heap").Header("X-Go-Pprof"), "1");
}

TEST_F(HttpEndpointsTest, GoDifference) {
  std::atomic<int> snapshots = 0;
  collector_.WhenAsked([&](const std::string& call) { snapshots += call == "Snapshot" ? 1 : 0; });
  const Answered answer = Get("/debug/pprof/heap?seconds=1");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(snapshots, 2);
  // Nothing has changed, so no sample is in it.
  EXPECT_LT(answer.body.size(), Get("/debug/pprof/heap").body.size());
}

TEST_F(HttpEndpointsTest, GoDifferenceOfProcessThatEnds) {
  std::atomic<int> snapshots = 0;
  collector_.WhenAsked([&](const std::string& call) {
    if (call == "Snapshot" && ++snapshots == 2) collector_.ReusePid(42);
  });
  const Answered answer = Get("/debug/pprof/heap?seconds=1");
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(answer.body, "process 42 ended in the meantime\n");
  EXPECT_EQ(answer.Header("X-Go-Pprof"), "1");
}

TEST_F(HttpEndpointsTest, StopEndsDifferences) {
  std::atomic<bool> is_asked = false;
  collector_.WhenAsked([&](const std::string& call) { is_asked = is_asked || call == "Snapshot"; });
  const base::FileDescriptor client = Connect();
  SendAll(client, RequestText("GET", "/debug/pprof/heap?seconds=3600"));
  while (!is_asked) std::this_thread::yield();
  server_.reset();
  ReceiveAll(client);
}

// --- other pages of a process ---

TEST_F(HttpEndpointsTest, Collapsed) {
  EXPECT_EQ(Get("/pid/42/collapsed").body, "0xfff;0x1fff 4096\n");
  EXPECT_EQ(Get("/pid/42/collapsed?value=allocated_bytes").body, "0xfff;0x1fff 8192\n");
  EXPECT_EQ(Get("/pid/42/collapsed?value=live_objects").body, "0xfff;0x1fff 4096\n");
  const Answered wrong = Get("/pid/42/collapsed?value=x");
  EXPECT_EQ(wrong.status, 400);
  EXPECT_EQ(json::parse(wrong.body)["error"],
            "value must be live_bytes, live_objects, allocated_bytes or allocated_objects");
}

TEST_F(HttpEndpointsTest, HeapFormats) {
  EXPECT_EQ(Get("/pid/42/heap").body, formats::HeapV2(profile()));
  EXPECT_EQ(Get("/pid/42/heap").Header("Content-Type"), "text/plain");
  EXPECT_EQ(Get("/pid/42/heap?format=heap_v2").body, formats::HeapV2(profile()));
  EXPECT_EQ(Get("/pid/42/heap?format=gperftools").body, formats::GperftoolsHeap(profile()));
  EXPECT_EQ(Get("/pid/42/heap?format=collapsed").body, "0xfff;0x1fff 4096\n");
  EXPECT_EQ(Get("/pid/42/heap?format=jeprof").body, Get("/pid/42/jeprof").body);
  EXPECT_THAT(Get("/pid/42/jeprof").body, StartsWith("--- symbol\nbinary=program\n"));
  EXPECT_THAT(Get("/pid/42/heap?format=pprof").body, StartsWith("\x1f\x8b"));
  EXPECT_EQ(Get("/pid/42/heap?format=/etc/passwd").status, 400);
}

TEST_F(HttpEndpointsTest, Steering) {
  EXPECT_EQ(json::parse(Post("/pid/42/dump").body),
            json({{"schema_version", 1}, {"path", "/var/lib/heaptap/heaptap.42.0.m0.heap"}}));
  EXPECT_EQ(Post("/pid/42/active?value=on").status, 200);
  EXPECT_EQ(Post("/pid/42/active?value=off").status, 200);
  EXPECT_EQ(Post("/pid/42/rate?lg=0").status, 200);
  EXPECT_EQ(Post("/pid/42/rate?lg=46").status, 200);
  EXPECT_EQ(Post("/pid/42/rate?lg=default").status, 200);
  const std::vector<std::string> deeds = collector_.Deeds();
  EXPECT_THAT(deeds,
              ElementsAre("dump 42", "active 42 on", "active 42 off", "rate 42 0", "rate 42 46", "rate 42 default"));
  for (const char* path : {"/pid/42/active", "/pid/42/active?value=true", "/pid/42/rate", "/pid/42/rate?lg=47",
                           "/pid/42/rate?lg=-1", "/pid/42/rate?lg=+1", "/pid/42/rate?lg=0x1", "/pid/42/rate?lg=01"}) {
    EXPECT_EQ(Post(path).status, 400) << path;
  }
  for (const char* path : {"/pid/42/dump", "/pid/42/active?value=on", "/pid/42/rate?lg=1", "/dump"}) {
    EXPECT_EQ(Get(path).status, 405) << path;
    EXPECT_EQ(Get(path).Header("Allow"), "POST");
  }
  EXPECT_EQ(collector_.Deeds(), deeds);
}

TEST_F(HttpEndpointsTest, DumpAll) {
  AddAnother();
  collector_.snapshots.erase(43);
  EXPECT_EQ(json::parse(Post("/dump").body)["dumps"],
            json::parse(R"([{"pid": 42, "path": "/var/lib/heaptap/heaptap.42.0.m0.heap"},
                            {"pid": 43, "error": "the disk is full"}])"));
}

TEST_F(HttpEndpointsTest, Settle) {
  EXPECT_EQ(Post("/settle").status, 200);
  EXPECT_THAT(collector_.Deeds(), ElementsAre("settle"));
  EXPECT_EQ(Get("/settle").status, 405);
  collector_.status = absl::UnavailableError("the collector did not answer in time");
  EXPECT_EQ(Post("/settle").status, 503);
}

TEST_F(HttpEndpointsTest, Processes) {
  AddAnother();
  collector_.processes[1].owner = std::nullopt;
  collector_.processes[1].losses = {{"map_full", 3}};
  collector_.processes[1].service = "<b>web";
  collector_.processes[1].control_group = "/a\x1b[2J\xff";
  const Answered answer = Get("/processes.json");
  EXPECT_EQ(answer.Header("Content-Type"), "application/json");
  const json document = json::parse(answer.body);
  EXPECT_EQ(document["schema_version"], 1);
  ASSERT_EQ(document["processes"].size(), 2);
  EXPECT_EQ(document["processes"][0], json::parse(R"({"pid": 42, "process_id": 420, "owner": 0, "command": "program",
                            "executable": "/usr/bin/program", "service": null, "control_group": null,
                            "recorded_since": "2023-11-14T22:13:20+00:00",
                            "live_bytes": 4096.0, "live_objects": 4096.0, "peak_bytes": 4096.0,
                            "allocated_bytes": 8192.0, "allocated_objects": 8192.0, "allocation_rate": 0.0,
                            "contexts": 1, "samples": 2, "lg_sample": 19, "active": null, "losses": {},
                            "allocator": null, "resident_bytes": null, "growth_per_minute": null, "growth_error": null,
                            "growth_seconds": null})"));
  EXPECT_EQ(document["processes"][1]["owner"], nullptr);
  EXPECT_EQ(document["processes"][1]["command"], "oth\\012er");
  EXPECT_EQ(document["processes"][1]["service"], "<b>web");
  EXPECT_EQ(document["processes"][1]["control_group"], "/a\\033[2J\\377");
  EXPECT_EQ(document["processes"][1]["losses"]["map_full"], 3);
}

TEST_F(HttpEndpointsTest, Ended) {
  collector_.ended.push_back({.summary = collector_.processes[0],
                              .ended = absl::FromUnixSeconds(1700000001),
                              .status = 9,
                              .by_oom_kill = true,
                              .dump = "/x"});
  collector_.ended[0].summary.command = "\xff";
  const json document = json::parse(Get("/ended.json").body);
  EXPECT_EQ(document["schema_version"], 1);
  const json& process = document["ended"].at(0);
  EXPECT_EQ(process["pid"], 42);
  EXPECT_EQ(process["command"], "\\377");
  EXPECT_EQ(process["ended"], "2023-11-14T22:13:21+00:00");
  EXPECT_EQ(process["status"], 9);
  EXPECT_EQ(process["by_oom_kill"], true);
  EXPECT_EQ(process["dump"], "/x");
}

TEST_F(HttpEndpointsTest, Allocator) {
  EXPECT_EQ(json::parse(Get("/pid/42/allocator.json").body)["statistics"]["mapped"], 300);
  collector_.allocators.clear();
  const Answered answer = Get("/pid/42/allocator.json");
  EXPECT_EQ(answer.status, 409);
  EXPECT_EQ(json::parse(answer.body), json({{"error", "its allocator has no control block"}}));
}

TEST_F(HttpEndpointsTest, Resident) {
  const json expected = {{"schema_version", 1}, {"anonymous", 4000}, {"files", 300}, {"shared", 20}, {"stacks", 1}};
  EXPECT_EQ(json::parse(Get("/pid/42/resident.json").body), expected);
  EXPECT_EQ(Get("/pid/43/resident.json").status, 404);
}

TEST_F(HttpEndpointsTest, ProcessThatIsReplacedIsNotAnsweredFor) {
  std::atomic<bool> is_done = false;
  collector_.WhenAsked([&](const std::string& call) {
    if ((call == "Snapshot" || call == "Allocator" || call == "Resident") && !is_done.exchange(true))
      collector_.ReusePid(42);
  });
  for (const char* path : {"/pid/42/heap", "/pid/42/pprof/heap", "/pid/42/allocator.json", "/pid/42/resident.json",
                           "/pid/42/mtev/memory.json", "/mtev/heap_profile", "/debug/pprof/heap"}) {
    is_done = false;
    EXPECT_EQ(Get(path).status, 404) << path;
  }
}

TEST_F(HttpEndpointsTest, ErrorsOfTheCollector) {
  const std::pair<absl::Status, int> kErrors[] = {
      {absl::UnavailableError("busy"), 503},         {absl::FailedPreconditionError("not so"), 409},
      {absl::PermissionDeniedError("may not"), 403}, {absl::NotFoundError("gone"), 404},
      {absl::InvalidArgumentError("wrong"), 400},    {absl::InternalError("broken"), 500},
  };
  for (const auto& [error, status] : kErrors) {
    collector_.status = error;
    for (const char* path : {"/processes.json", "/ended.json", "/pid/42/heap", "/metrics", "/mtev/memory.json",
                             "/debug/pprof/heap", "/pprof/heap"}) {
      EXPECT_EQ(Get(path).status, status) << path;
    }
    EXPECT_EQ(json::parse(Get("/processes.json").body), json({{"error", error.message()}}));
    EXPECT_EQ(Get("/healthz").status, 503);
    EXPECT_EQ(Get("/processes.json").Header("Retry-After"), "") << "it is not about time";
  }
}

// The page and its script are for browsers, which must not guess types.
TEST_F(HttpEndpointsTest, NoHeaderIsThereTwice) {
  for (const char* path : {"/", "/page.js", "/page.css", "/healthz", "/processes.json"}) {
    std::set<std::string> names;
    const Answered answer = Get(path);
    EXPECT_EQ(answer.Header("X-Content-Type-Options"), "nosniff") << path;
    const std::vector<std::string> lines = absl::StrSplit(answer.headers, "\r\n", absl::SkipEmpty());
    for (const std::string& line : lines) EXPECT_TRUE(names.insert(line.substr(0, line.find(':'))).second) << line;
  }
}

// --- the whole ---

TEST_F(HttpEndpointsTest, Health) {
  std::atomic<bool> is_asked = false;
  collector_.WhenAsked([&](const std::string&) { is_asked = true; });
  EXPECT_EQ(Get("/healthz").status, 200);
  EXPECT_EQ(Get("/healthz").body, "ok\n");
  EXPECT_FALSE(is_asked) << "it costs the collector nothing";
}

TEST_F(HttpEndpointsTest, Metrics) {
  const Answered answer = Get("/metrics");
  EXPECT_EQ(answer.Header("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_THAT(answer.body, HasSubstr("heaptap_live_bytes{pid=\"42\",command=\"program\"} 4096\n"));
}

TEST_F(HttpEndpointsTest, Page) {
  const Answered answer = Get("/");
  EXPECT_EQ(answer.Header("Content-Type"), "text/html; charset=utf-8");
  EXPECT_THAT(answer.Header("Content-Security-Policy"), StartsWith("default-src 'none'; script-src 'self'; "));
  EXPECT_THAT(answer.Header("Content-Security-Policy"), Not(HasSubstr("unsafe")));
  EXPECT_THAT(answer.body, HasSubstr("<script src=\"/page.js\"></script>"));
  EXPECT_EQ(Get("/page.js").Header("Content-Type"), "text/javascript; charset=utf-8");
  EXPECT_EQ(Get("/page.css").Header("Content-Type"), "text/css; charset=utf-8");
}

TEST_F(HttpEndpointsTest, ProfileOfThePage) {
  const auto document = nlohmann::json::parse(Get("/pid/42/profile.json").body);
  EXPECT_EQ(document["subject"]["pid"], 42);
  EXPECT_EQ(document["subject"]["name"], "program (PID 42)");
  EXPECT_EQ(document["paths"]["stack"].size(), document["paths"]["live_bytes"].size());
  EXPECT_EQ(Get("/profile.json").status, 404) << "only behind a PID";
}

TEST_F(HttpEndpointsTest, HeadersOfAllAnswers) {
  for (const char* path : {"/", "/healthz", "/metrics", "/none", "/pid/42/heap", "/mtev/heap_profile", "/%"}) {
    const Answered answer = Get(path);
    EXPECT_EQ(answer.Header("X-Content-Type-Options"), "nosniff") << path;
    EXPECT_EQ(answer.Header("Cache-Control"), "no-store") << path;
  }
}

TEST_F(HttpEndpointsTest, NoSuchPath) {
  for (const char* path : {"/x",
                           "//",
                           "//healthz",
                           "/healthz/",
                           "/pid",
                           "/pid/",
                           "/pid/42",
                           "/pid/42/",
                           "/pid/42//heap",
                           "/pid/42/heap/",
                           "/pid/042/heap",
                           "/pid/+42/heap",
                           "/pid/42x/heap",
                           "/pid/0/heap",
                           "/pid/-1/heap",
                           "/pid/4194305/heap",
                           "/pid/99999999999999999999/heap",
                           "/pid/42/../42/heap",
                           "/pid/42/../../etc/passwd",
                           "/../../etc/passwd",
                           "/pid/42/%2e%2e/%2e%2e/etc/passwd",
                           "/%2e%2e/%2e%2e/etc/passwd",
                           "/pid/42/heap%00",
                           "/pid%252f42/heap",
                           "/pid/42/heap%2500",
                           "/pid/%00/heap",
                           "/healthz%00",
                           "/heap",
                           "/jeprof",
                           "/rate",
                           "/active",
                           "/%",
                           "/%f",
                           "/pid/41/heap",
                           "/pid/1/pprof/heap",
                           "/HEALTHZ"}) {
    const Answered answer = Get(path);
    EXPECT_EQ(answer.status, 404) << path;
    EXPECT_THAT(answer.body, Not(HasSubstr("root:"))) << path;
  }
  // Another spelling of a path is the same page.
  EXPECT_EQ(Get("/h%65althz").status, 200);
}

TEST_F(HttpEndpointsTest, WrongPids) {
  for (const char* pid : {"", "x", "0", "-1", "+42", "042", "42x", "4194305", "0x2a", "42%00", "../42"}) {
    const Answered answer = Get(absl::StrCat("/mtev/memory.json?pid=", pid));
    EXPECT_EQ(answer.status, 400) << pid;
    EXPECT_EQ(answer.body, "the parameter pid must be a PID\n");
  }
}

}  // namespace
}  // namespace heaptap::api
