// SPDX-License-Identifier: Apache-2.0
#include "userspace/json/recent_json.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/json/json.h"

namespace heaptap::json {
namespace {

void AddDeed(const std::string& prefix, const profile::Deed& deed, Json& to) {
  to.Set(prefix + "_thread_uid", deed.tid);
  if (!deed.thread_name.empty()) to.Set(prefix + "_thread_name", deed.thread_name);
  to.Set(prefix + "_time", deed.time);
  Json trace = Json::List();
  if (deed.frames != nullptr) {
    for (const uint64_t frame : *deed.frames) trace.Add(absl::StrCat("0x", absl::Hex(frame)));
  }
  to.Set(prefix + "_trace", std::move(trace));
}

}  // namespace

std::string RecentJson(const profile::SampleRecords& records) {
  Json samples = Json::List();
  for (const profile::SampleRecord& record : records.samples) {
    Json sample = {{"size", record.size}, {"usize", record.size}, {"released", record.free.has_value()}};
    AddDeed("alloc", record.allocation, sample);
    if (record.free.has_value()) AddDeed("dalloc", *record.free, sample);
    samples.Add(std::move(sample));
  }
  // ~0: as many as there are, which jemalloc writes as -1.
  const Json all = {{"sample_interval", records.period},
                    {"recent_alloc_max", static_cast<int64_t>(records.demanded)},
                    {"recent_alloc", std::move(samples)}};
  return all.Text({.indent = 1, .indent_character = '\t'}) + "\n";
}

}  // namespace heaptap::json
