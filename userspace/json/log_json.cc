// SPDX-License-Identifier: Apache-2.0
#include "userspace/json/log_json.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/numeric/bits.h"
#include "absl/strings/str_cat.h"
#include "userspace/json/json.h"

namespace heaptap::json {
namespace {

constexpr char kFormatVersion[] = "5.3";

// Numbered entries; a key keeps its number.
template <typename Key>
class Table {
 public:
  // `make` makes the entry of a new key.
  template <typename Make>
  size_t Number(const Key& key, Make make) {
    auto [entry, is_new] = numbers_.try_emplace(key, numbers_.size());
    if (is_new) entries_.Add(make());
    return entry->second;
  }
  Json Take() { return std::move(entries_); }

 private:
  std::map<Key, size_t> numbers_;
  Json entries_ = Json::List();
};

class Log {
 public:
  void Add(const profile::SampleRecord& record) {
    allocations_.Add({{"alloc_thread", Thread(record.allocation)},
                      {"free_thread", Thread(*record.free)},
                      {"alloc_trace", Trace(record.allocation)},
                      {"free_trace", Trace(*record.free)},
                      {"alloc_timestamp", record.allocation.time},
                      {"free_timestamp", record.free->time},
                      {"usize", record.size}});
  }

  std::string Write(Json info) {
    const Json all = {{"info", std::move(info)},
                      {"threads", threads_.Take()},
                      {"stack_traces", traces_.Take()},
                      {"allocations", std::move(allocations_)}};
    return all.Text() + "\n";
  }

 private:
  size_t Thread(const profile::Deed& deed) {
    return threads_.Number(deed.tid, [&] { return Json{{"thr_uid", deed.tid}, {"thr_name", deed.thread_name}}; });
  }

  size_t Trace(const profile::Deed& deed) {
    static const std::vector<uint64_t> kNone;
    const std::vector<uint64_t>& trace = deed.frames == nullptr ? kNone : *deed.frames;
    return traces_.Number(trace, [&] {
      Json frames = Json::List();
      for (const uint64_t frame : trace) frames.Add(absl::StrCat("0x", absl::Hex(frame)));
      return frames;
    });
  }

  Table<uint32_t> threads_;
  Table<std::vector<uint64_t>> traces_;
  Json allocations_ = Json::List();
};

}  // namespace

std::string LogJson(const profile::SampleRecords& records) {
  Log log;
  for (const profile::SampleRecord& record : records.samples) {
    if (record.free.has_value()) log.Add(record);
  }
  // A sample gets its number after its time, so the first and the last sample may not be first and last in time.
  uint64_t begin = ~uint64_t{0};
  uint64_t end = 0;
  for (const profile::SampleRecord& record : records.samples) {
    begin = std::min(begin, record.allocation.time);
    end = std::max({end, record.allocation.time, record.free.has_value() ? record.free->time : 0});
  }
  const uint64_t lost = records.demanded > records.samples.size() ? records.demanded - records.samples.size() : 0;
  return log.Write({{"duration", end > begin ? end - begin : 0},
                    {"version", kFormatVersion},
                    {"lg_sample_rate", absl::countr_zero(records.period)},
                    {"prof_time_resolution", "default"},
                    {"pid", records.pid},
                    {"lost_allocations", lost}});
}

}  // namespace heaptap::json
