// SPDX-License-Identifier: Apache-2.0
#include "userspace/json/prometheus.h"

#include <charconv>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "userspace/base/printable_text.h"
#include "userspace/profile/estimate.h"
#include "userspace/profile/figure_tables.h"

namespace heaptap::json {
namespace {

struct Label {
  absl::string_view name;
  std::string value;
};

// Writes families, one after the other.
class Exposition {
 public:
  // Begins a family. `help`: without line breaks and backslashes.
  void Begin(absl::string_view name, absl::string_view type, absl::string_view help) {
    name_ = name;
    header_ = absl::StrCat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
  }

  // Adds a series to the family.
  void Add(std::initializer_list<Label> labels, uint64_t value) { Add("", labels, absl::StrCat(value)); }
  void Add(absl::string_view suffix, std::initializer_list<Label> labels, absl::string_view value) {
    // Written with the first series, because a family may have none.
    out_.append(std::exchange(header_, ""));
    absl::StrAppend(&out_, name_, suffix);
    absl::string_view separator = "{";
    for (const Label& label : labels) {
      absl::StrAppend(&out_, separator, label.name, "=\"");
      AppendEscaped(label.value);
      out_.push_back('"');
      separator = ",";
    }
    absl::StrAppend(&out_, labels.size() == 0 ? "" : "}", " ", value, "\n");
  }

  std::string Finish() && { return std::move(out_); }

 private:
  // In label values, quotes and backslashes are escaped by a backslash.
  void AppendEscaped(absl::string_view text) {
    for (char c : base::Printable(text)) {
      if (c == '"' || c == '\\') out_.push_back('\\');
      out_.push_back(c);
    }
  }

  std::string out_;
  absl::string_view name_;
  std::string header_;
};

// The shortest text that reads back as the same number.
std::string Number(double value) {
  // The longest is -2.2250738585072014e-308.
  char text[32];
  return std::string(text, std::to_chars(std::begin(text), std::end(text), value).ptr);
}

// The value of a metric.
uint64_t Whole(double figure) { return profile::ToWhole(figure); }
template <typename Value>
uint64_t Whole(const Value& figure) {
  if constexpr (std::integral<Value>) return figure;
  return 0;  // such a figure has no metric
}

class Writer {
 public:
  explicit Writer(const profile::CollectorFigures& figures) : figures_(figures) {}

  std::string Write() && {
    WriteCollector();
    WriteDumps();
    WriteProcesses();
    WriteLosses();
    return std::move(out_).Finish();
  }

 private:
  void WriteCollector() {
    out_.Begin("heaptap_build_info", "gauge", "Version of the collector; the value is always 1.");
    out_.Add({{"version", figures_.version}, {"revision", figures_.revision}}, 1);
    out_.Begin("heaptap_targets", "gauge", "Processes that are recorded.");
    out_.Add({}, figures_.processes.size());
    out_.Begin("heaptap_events_total", "counter", "Events that the collector has handled, by kind.");
    for (const auto& [kind, count] : figures_.events) out_.Add({{"op", kind}}, count);
    if (figures_.kernel_memory_bytes.has_value()) {
      out_.Begin("heaptap_kernel_memory_bytes", "gauge", "Kernel memory that the collector's maps hold.");
      out_.Add({}, *figures_.kernel_memory_bytes);
    }
    out_.Begin("heaptap_kernel_memory_most_bytes", "gauge", "Kernel memory of the keys and values of full maps.");
    out_.Add({}, figures_.kernel_memory_most_bytes);
    out_.Begin("heaptap_agent_ring_fill_ratio", "gauge", "Filled part of the ring buffer from the kernel, 0 to 1.");
    out_.Add("", {}, Number(figures_.ring_fill_ratio));
    out_.Begin("heaptap_longest_pause_seconds", "gauge",
               "How long events had to wait for the collector at most, in the last 10 to 20 seconds.");
    out_.Add("", {}, Number(absl::ToDoubleSeconds(figures_.longest_pause)));
    out_.Begin("heaptap_failing", "gauge", "1 for each task that fails at present and is tried again.");
    for (const auto& [task, since] : figures_.failing) out_.Add({{"task", task}}, 1);
    out_.Begin("heaptap_beyond_bound_total", "counter", "What was left undone because a user has too much of it.");
    for (const auto& [bound, count] : figures_.beyond_bounds) out_.Add({{"bound", bound}}, count);
  }

  void WriteDumps() {
    uint64_t dumps = 0;
    out_.Begin("heaptap_dumps_total", "counter", "Profiles written, by trigger.");
    for (const auto& [trigger, count] : figures_.dumps) {
      out_.Add({{"trigger", trigger}}, count);
      dumps += count;
    }
    out_.Begin("heaptap_dump_errors_total", "counter", "Profiles that could not be written.");
    out_.Add({}, figures_.dump_errors);
    out_.Begin("heaptap_dump_duration_seconds", "summary", "Time spent writing profiles.");
    out_.Add("_sum", {}, Number(absl::ToDoubleSeconds(figures_.dump_time)));
    out_.Add("_count", {}, absl::StrCat(dumps));
    out_.Begin("heaptap_last_dump_timestamp_seconds", "gauge", "When the last profile was written, in Unix time.");
    if (figures_.last_dump.has_value()) {
      out_.Add("", {}, Number(static_cast<double>(absl::ToUnixMicros(*figures_.last_dump)) / 1e6));
    }
  }

  void WriteProcesses() {
    profile::ForEachFigure<profile::kProcessFigures>([&](const auto& row) {
      const profile::Metric& metric = row.shown.metric;
      if (metric.name == nullptr) return;
      out_.Begin(metric.name, metric.type, metric.help);
      for (const profile::ProcessSummary& process : figures_.processes) {
        const uint64_t value = Whole(process.*row.value);
        out_.Add({{"pid", absl::StrCat(process.pid)}, {"command", process.command}},
                 metric.is_power ? uint64_t{1} << value : value);
      }
    });
  }

  // Two families, because all series of a family must have the same labels.
  void WriteLosses() {
    out_.Begin("heaptap_events_lost_total", "counter", "Events of a process that are not in its figures, by reason.");
    for (const profile::ProcessSummary& process : figures_.processes) {
      for (const auto& [reason, count] : process.losses) {
        out_.Add({{"pid", absl::StrCat(process.pid)}, {"command", process.command}, {"reason", reason}}, count);
      }
    }
    out_.Begin("heaptap_unowned_events_lost_total", "counter", "Events lost that belong to no process, by reason.");
    for (const auto& [reason, count] : figures_.losses) out_.Add({{"reason", reason}}, count);
  }

  const profile::CollectorFigures& figures_;
  Exposition out_;
};

}  // namespace

std::string Prometheus(const profile::CollectorFigures& figures) { return Writer(figures).Write(); }

}  // namespace heaptap::json
