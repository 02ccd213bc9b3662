// SPDX-License-Identifier: Apache-2.0
//
// Every writer but HeapV2 (heap_v2_fuzzer.cc) on any profile. Threads' names, paths and symbols are the process's
// choice: whatever they are, a line is a line of the format, and no control character gets through.
#include <fuzzer/FuzzedDataProvider.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"
#include "tests/fuzz/check.h"
#include "userspace/formats/collapsed.h"
#include "userspace/formats/growth_heap.h"
#include "userspace/formats/jeprof_symbolized.h"
#include "userspace/formats/pprof.h"
#include "userspace/json/log_json.h"
#include "userspace/json/prometheus.h"
#include "userspace/json/recent_json.h"
#include "userspace/profile/figures.h"
#include "userspace/profile/sample_record.h"

namespace {

using heaptap::profile::Context;
using heaptap::profile::Estimate;
using heaptap::profile::Profile;
using heaptap::profile::SourceFrame;

Estimate AnyEstimate(FuzzedDataProvider& data) {
  return {data.ConsumeIntegral<uint32_t>(), data.ConsumeIntegral<uint32_t>(),
          data.ConsumeFloatingPointInRange<double>(0, 1e15), data.ConsumeFloatingPointInRange<double>(0, 1e15)};
}

Profile AnyProfile(FuzzedDataProvider& data) {
  Profile profile;
  profile.period = uint64_t{1} << data.ConsumeIntegralInRange(0, 63);
  while (data.ConsumeBool()) profile.thread_names[data.ConsumeIntegral<uint8_t>()] = data.ConsumeRandomLengthString();
  for (uint64_t start = 0x1000; data.ConsumeBool(); start += 0x1000) {
    profile.mappings.push_back({.start = start,
                                .end = start + 0x1000,
                                .inode = start,
                                .path = data.ConsumeRandomLengthString(),
                                .build_id = data.ConsumeRandomLengthString(20)});
  }
  for (uint64_t i = 0; data.ConsumeBool(); i++) {
    Context context = {.frames = {i}};  // no two with the same frames
    while (data.ConsumeBool()) context.frames.push_back(data.ConsumeIntegral<uint16_t>());
    for (uint32_t tid = 0; data.ConsumeBool(); tid++) {
      context.threads.push_back({tid, AnyEstimate(data), AnyEstimate(data)});
    }
    profile.contexts.push_back(context);
  }
  return profile;
}

std::vector<SourceFrame> AnyFrames(FuzzedDataProvider& data) {
  std::vector<SourceFrame> frames;
  while (data.ConsumeBool()) {
    frames.push_back({.function = data.ConsumeRandomLengthString(),
                      .linkage_name = data.ConsumeRandomLengthString(),
                      .file = data.ConsumeRandomLengthString(),
                      .line = data.ConsumeIntegral<uint32_t>()});
  }
  return frames;
}

// The lines of a text, each of which ends; nothing but printable characters.
std::vector<std::string> LinesOf(const std::string& text) {
  Check(text.empty() || text.back() == '\n');
  for (const unsigned char character : text) Check(character == '\n' || (character >= ' ' && character != 0x7f));
  return absl::StrSplit(absl::StripSuffix(text, "\n"), '\n', absl::SkipEmpty());
}

// "NAME...;NAME VALUE"
void CheckCollapsed(const std::string& text) {
  for (const std::string& line : LinesOf(text)) {
    const size_t blank = line.rfind(' ');
    uint64_t value;
    Check(blank != std::string::npos && blank > 0 && absl::SimpleAtoi(line.substr(blank + 1), &value) && value > 0);
  }
}

// "NAME{LABEL="VALUE",...} VALUE", or a comment.
void CheckPrometheus(const std::string& text) {
  for (absl::string_view line : LinesOf(text)) {
    if (absl::StartsWith(line, "# HELP ") || absl::StartsWith(line, "# TYPE ")) continue;
    size_t at = 0;
    while (at < line.size() && (absl::ascii_isalnum(line[at]) || line[at] == '_')) at++;
    Check(at > 0 && at < line.size());
    if (line[at] == '{') {
      bool is_quoted = false;
      for (at++; at < line.size() && (is_quoted || line[at] != '}'); at++) {
        if (is_quoted && line[at] == '\\') {
          at++;
        } else if (line[at] == '"') {
          is_quoted = !is_quoted;
        }
      }
      Check(at < line.size());
      at++;
    }
    double value;
    Check(line[at] == ' ' && absl::SimpleAtod(line.substr(at + 1), &value));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace heaptap::formats;

  FuzzedDataProvider data(bytes, size);
  const Profile profile = AnyProfile(data);
  const std::vector<SourceFrame> frames = AnyFrames(data);
  const heaptap::profile::FindSourceFrames find = [&frames](uint64_t address) {
    return address % 2 == 0 ? frames : std::vector<SourceFrame>();
  };
  const std::string program = data.ConsumeRandomLengthString();
  CheckCollapsed(Collapsed(profile,
                           data.PickValueInArray({CollapsedValue::kLiveBytes, CollapsedValue::kLiveObjects,
                                                  CollapsedValue::kAllocatedBytes}),
                           find));
  LinesOf(GrowthHeap(profile));
  const std::string symbolized = JeprofSymbolized(profile, program, find);
  Check(absl::StartsWith(symbolized, "--- symbol\nbinary="));
  Check(!Pprof(profile, {.program = program, .find_source_frames = find}).empty());

  heaptap::profile::CollectorFigures figures = {.version = data.ConsumeRandomLengthString()};
  for (const auto& [tid, name] : profile.thread_names) {
    figures.processes.push_back({.pid = static_cast<pid_t>(tid + 1), .command = name, .losses = {{name, 1}}});
  }
  CheckPrometheus(heaptap::json::Prometheus(figures));

  heaptap::profile::SampleRecords records;
  for (const auto& [tid, name] : profile.thread_names) {
    records.samples.push_back({.size = tid, .allocation = {.tid = tid, .thread_name = name}});
  }
  Check(nlohmann::json::accept(heaptap::json::RecentJson(records)));
  Check(nlohmann::json::accept(heaptap::json::LogJson(records)));
  return 0;
}
