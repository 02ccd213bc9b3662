// SPDX-License-Identifier: Apache-2.0
//
// Any bytes on a connection, from any peer: all that comes back is whole answers with the headers that all have, and a
// user never sees a word of a process that is not his.
#include <fuzzer/FuzzedDataProvider.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/fuzz/check.h"
#include "tests/unit/fake_collector.h"
#include "tests/unit/memory_channel.h"
#include "userspace/api/endpoints.h"
#include "userspace/http/service.h"

namespace {

using heaptap::api::AddProcess;
using heaptap::api::FakeCollector;
using heaptap::http::Limits;
using heaptap::http::MemoryChannel;
using heaptap::http::Peer;
using heaptap::http::Service;

// No process can have these.
constexpr pid_t kRootsPid = 4194303;
constexpr pid_t kUsersPid = 4194304;
constexpr uid_t kUser = 1000;
constexpr char kSecret[] = "secret";

FakeCollector* MakeCollector() {
  auto* collector = new FakeCollector;
  AddProcess(*collector, kRootsPid, 0, kSecret, 4096);
  AddProcess(*collector, kUsersPid, kUser, "program", 4096);
  collector->ended.push_back({.summary = collector->processes[0], .dump = kSecret});
  return collector;
}

void CheckOutput(absl::string_view output, bool is_user) {
  if (output.empty()) return;
  Check(absl::StartsWith(output, "HTTP/1.1 "));
  Check(absl::StartsWith(output, "HTTP/1.1 100 ") || absl::StrContains(output, "X-Content-Type-Options: nosniff\r\n"));
  if (is_user) Check(!absl::StrContains(output, kSecret));
}

// A request for one of the pages, with anything in it.
std::string AlmostARequest(FuzzedDataProvider& data) {
  const char* method = data.PickValueInArray({"GET", "HEAD", "POST"});
  const char* process = data.PickValueInArray({"/", "/pid/4194303/", "/pid/4194304/", "/pid/"});
  const char* page = data.PickValueInArray({"",
                                            "mtev/heap_profile",
                                            "mtev/memory.json",
                                            "pprof/heap",
                                            "pprof/growth",
                                            "pprof/symbol",
                                            "pprof/cmdline",
                                            "debug/pprof/heap",
                                            "debug/pprof/allocs",
                                            "debug/pprof/symbol",
                                            "heap",
                                            "collapsed",
                                            "jeprof",
                                            "allocator.json",
                                            "dump",
                                            "active",
                                            "rate",
                                            "processes.json",
                                            "ended.json",
                                            "metrics",
                                            "healthz"});
  const char* query = data.PickValueInArray({"", "?", "?pid=4194303&", "?pid=4194304&", "?pid=", "?seconds=", "?debug=",
                                             "?active=", "?trigger_dump=true&", "?value=", "?lg=", "?format="});
  const std::string rest = data.ConsumeRandomLengthString(64);
  const std::string header = data.ConsumeRandomLengthString(64);
  const std::string body = data.ConsumeRandomLengthString(256);
  return absl::StrCat(method, " ", process, page, query, rest, " HTTP/1.1\r\nHost: localhost\r\n", header,
                      header.empty() ? "" : "\r\n", "Content-Length: ", body.size(), "\r\n\r\n", body);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static FakeCollector* collector = MakeCollector();
  static auto* crews = new heaptap::worker::Crews;
  static auto* service = new Service(heaptap::api::MakeHandler(*collector, *crews), Limits(), std::nullopt);
  FuzzedDataProvider data(bytes, size);
  const int user = data.ConsumeIntegralInRange(0, 2);
  std::optional<Peer> peer;
  if (user == 1) peer = Peer{.uid = 0, .groups = {0}};
  if (user == 2) peer = Peer{.uid = kUser, .groups = {kUser}};
  const size_t piece = data.ConsumeIntegralInRange<size_t>(1, 512);
  std::string input;
  while (data.ConsumeBool()) input.append(AlmostARequest(data));
  input.append(data.ConsumeRemainingBytesAsString());
  MemoryChannel channel(input, piece);
  service->Serve(channel, peer);
  CheckOutput(channel.output, user == 2);
  collector->ForgetDeeds();
  return 0;
}
