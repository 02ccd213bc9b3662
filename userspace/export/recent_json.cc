// SPDX-License-Identifier: Apache-2.0
#include "userspace/export/recent_json.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace heaptap::exporter {
namespace {

using nlohmann::ordered_json;

void AddDeed(const std::string& prefix, const profile::Deed& deed, ordered_json& to) {
  to[prefix + "_thread_uid"] = deed.tid;
  if (!deed.thread_name.empty()) to[prefix + "_thread_name"] = deed.thread_name;
  to[prefix + "_time"] = deed.time;
  ordered_json& trace = to[prefix + "_trace"] = ordered_json::array();
  if (deed.frames == nullptr) return;
  for (const uint64_t frame : *deed.frames) trace.push_back(absl::StrCat("0x", absl::Hex(frame)));
}

}  // namespace

std::string RecentJson(const profile::SampleRecords& records) {
  ordered_json samples = ordered_json::array();
  for (const profile::SampleRecord& record : records.samples) {
    ordered_json sample = {{"size", record.size}, {"usize", record.size}, {"released", record.free.has_value()}};
    AddDeed("alloc", record.allocation, sample);
    if (record.free.has_value()) AddDeed("dalloc", *record.free, sample);
    samples.push_back(std::move(sample));
  }
  // ~0 is "as many as there are", which jemalloc calls -1.
  const ordered_json all = {{"sample_interval", records.period},
                            {"recent_alloc_max", static_cast<int64_t>(records.demanded)},
                            {"recent_alloc", std::move(samples)}};
  // Names are any bytes; JSON is UTF-8.
  return all.dump(1, '\t', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace heaptap::exporter
