// SPDX-License-Identifier: Apache-2.0
//
// Tests the metrics with Prometheus' own tool, and what its Python library reads from them.
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/reader.h"
#include "userspace/json/prometheus.h"
#include "userspace/profile/figures.h"

namespace heaptap::json {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Prints "<name> <labels> <value>" for each series, as the library's parser has found it. Fails where a family or a
// series comes twice, as Prometheus would.
constexpr char kReadBack[] = R"(
from prometheus_client.parser import text_string_to_metric_families
text = open("metrics", encoding="utf-8", newline="").read()
families = list(text_string_to_metric_families(text))
assert len({family.name for family in families}) == len(families)
series = [(sample.name, sorted(sample.labels.items())) for family in families for sample in family.samples]
assert len({repr(one) for one in series}) == len(series)
for family in families:
    assert family.documentation and family.type != "unknown", family.name
    for sample in family.samples:
        print(sample.name, sorted(sample.labels.items()), repr(sample.value))
)";

profile::CollectorFigures Everything() {
  profile::CollectorFigures figures = {.version = "0.1.0",
                                       .revision = "abc123",
                                       .events = {{"exec", 5}, {"fork", 18446744073709551615u}},
                                       .losses = {{"ring_full", 2}},
                                       .dumps = {{"manual", 3}, {"oom", 1}},
                                       .dump_errors = 4,
                                       .dump_time = absl::Milliseconds(1500),
                                       .last_dump = absl::FromUnixMillis(1700000000250),
                                       .kernel_memory_bytes = 123456789,
                                       .kernel_memory_most_bytes = 987654321,
                                       .ring_fill_ratio = 0.1,
                                       .longest_pause = absl::Milliseconds(12.5),
                                       .failing = {{"history", absl::UnixEpoch()}},
                                       .beyond_bounds = {{"connections", 7}}};
  figures.processes = {{.pid = 41,
                        .command = "redis-server",
                        .live_bytes = 4096.6,
                        .live_objects = 20.4,
                        .peak_bytes = 5000,
                        .allocated_bytes = 8192,
                        .allocated_objects = 300,
                        .contexts = 3,
                        .samples = 7,
                        .lg_sample = 19,
                        .losses = {{"live_full", 6}}},
                       {.pid = 42, .command = "postgres"}};
  return figures;
}

class PrometheusTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(access("/usr/bin/promtool", X_OK), 0) << "promtool comes with prometheus: run scripts/bootstrap";
  }

  // promtool's complaints; it also checks names and help texts.
  std::string Complaints(const profile::CollectorFigures& figures) const {
    reader_.Write("metrics", Prometheus(figures));
    Output output = reader_.Run("/usr/bin/promtool check metrics <metrics");
    return absl::StrCat(output.status == 0 ? "" : "failed: ", output.out, output.err);
  }

  std::vector<std::string> Series(const profile::CollectorFigures& figures) const {
    reader_.Write("metrics", Prometheus(figures));
    Output output = reader_.Run(absl::StrCat("/usr/bin/python3 ", reader_.Write("read.py", kReadBack)));
    EXPECT_EQ(output.status, 0) << output.err;
    return absl::StrSplit(output.out, '\n', absl::SkipEmpty());
  }

  Reader reader_;
};

TEST_F(PrometheusTest, PromtoolAcceptsIt) {
  EXPECT_THAT(Complaints(Everything()), IsEmpty());
  EXPECT_THAT(Complaints({}), IsEmpty());
}

// The readers do check.
TEST_F(PrometheusTest, ReadersRejectWhatIsWrong) {
  const std::string metrics = Prometheus(Everything());
  reader_.Write("metrics", metrics + "heaptap_wrong{command=\"a\"b\"} 1\n");
  EXPECT_NE(reader_.Run("/usr/bin/promtool check metrics <metrics").status, 0);
  reader_.Write("metrics", metrics + "heaptap_targets 3\n");
  EXPECT_NE(reader_.Run(absl::StrCat("/usr/bin/python3 ", reader_.Write("read.py", kReadBack))).status, 0);
  profile::CollectorFigures figures = Everything();
  figures.processes[1] = figures.processes[0];
  reader_.Write("metrics", Prometheus(figures));
  EXPECT_NE(reader_.Run(absl::StrCat("/usr/bin/python3 ", reader_.Write("read.py", kReadBack))).status, 0);
}

TEST_F(PrometheusTest, EachFigure) {
  std::vector<std::string> series = Series(Everything());
  const std::string redis = "[('command', 'redis-server'), ('pid', '41')] ";
  for (const std::string& expected : {
           std::string("heaptap_build_info [('revision', 'abc123'), ('version', '0.1.0')] 1.0"),
           std::string("heaptap_targets [] 2.0"),
           std::string("heaptap_events_total [('op', 'exec')] 5.0"),
           std::string("heaptap_kernel_memory_bytes [] 123456789.0"),
           std::string("heaptap_kernel_memory_most_bytes [] 987654321.0"),
           std::string("heaptap_agent_ring_fill_ratio [] 0.1"),
           std::string("heaptap_longest_pause_seconds [] 0.0125"),
           std::string("heaptap_failing [('task', 'history')] 1.0"),
           std::string("heaptap_beyond_bound_total [('bound', 'connections')] 7.0"),
           std::string("heaptap_dumps_total [('trigger', 'manual')] 3.0"),
           std::string("heaptap_dump_errors_total [] 4.0"),
           std::string("heaptap_dump_duration_seconds_sum [] 1.5"),
           std::string("heaptap_dump_duration_seconds_count [] 4.0"),
           std::string("heaptap_last_dump_timestamp_seconds [] 1700000000.25"),
           "heaptap_live_bytes " + redis + "4097.0",
           "heaptap_live_objects " + redis + "20.0",
           "heaptap_peak_bytes " + redis + "5000.0",
           "heaptap_allocated_bytes_total " + redis + "8192.0",
           "heaptap_allocated_objects_total " + redis + "300.0",
           "heaptap_samples_total " + redis + "7.0",
           "heaptap_sample_period_bytes " + redis + "524288.0",
           "heaptap_contexts " + redis + "3.0",
           std::string("heaptap_events_lost_total [('command', 'redis-server'), ('pid', '41'), "
                       "('reason', 'live_full')] 6.0"),
           std::string("heaptap_unowned_events_lost_total [('reason', 'ring_full')] 2.0"),
           std::string("heaptap_live_bytes [('command', 'postgres'), ('pid', '42')] 0.0"),
       }) {
    EXPECT_THAT(series, Contains(expected));
  }
  EXPECT_EQ(series.size(), 18u + 2 * 8);  // of the collector, of each process
}

TEST_F(PrometheusTest, FamiliesWithoutSeriesAreLeftOut) {
  EXPECT_THAT(Prometheus({}), Not(HasSubstr("heaptap_live_bytes")));
  EXPECT_THAT(Prometheus({}), Not(HasSubstr("heaptap_last_dump_timestamp_seconds")));
  EXPECT_THAT(Prometheus({}), Not(HasSubstr("heaptap_kernel_memory_bytes")));
}

TEST_F(PrometheusTest, HostileCommandsAreOneLabel) {
  std::string every_byte;
  for (int byte = 1; byte < 256; ++byte) every_byte.push_back(static_cast<char>(byte));
  const std::vector<std::string> commands = {"\"} 5\nheaptap_targets 9\n", "back\\slash\\", "\\n\\\"", every_byte,
                                             std::string("\0", 1),         "\xff",          "\u00e9"};
  profile::CollectorFigures figures;
  for (pid_t pid = 0; pid < static_cast<pid_t>(commands.size()); ++pid) {
    figures.processes.push_back({.pid = pid, .command = commands[pid], .peak_bytes = 1});
  }
  EXPECT_THAT(Complaints(figures), IsEmpty());
  std::vector<std::string> series = Series(figures);
  // Python writes a backslash as two.
  auto peak = [](const char* command, int pid) {
    return absl::StrCat("heaptap_peak_bytes [('command', '", command, "'), ('pid', '", pid, "')] 1.0");
  };
  EXPECT_THAT(series, Contains(peak("\"} 5\\\\012heaptap_targets 9\\\\012", 0)));
  EXPECT_THAT(series, Contains(peak("back\\\\slash\\\\", 1)));
  EXPECT_THAT(series, Contains(peak("\\\\n\\\\\"", 2)));
  EXPECT_THAT(series, Contains(HasSubstr("('command', '\\\\001\\\\002")));
  EXPECT_THAT(series, Contains(peak("\\\\000", 4)));
  EXPECT_THAT(series, Contains(peak("\\\\377", 5)));
  EXPECT_THAT(series, Contains(peak("\u00e9", 6)));
  EXPECT_THAT(series, Contains("heaptap_targets [] 7.0"));
}

}  // namespace
}  // namespace heaptap::json
