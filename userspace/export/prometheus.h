// SPDX-License-Identifier: Apache-2.0
//
// The figures of the collector, for Prometheus.
//
// Format: text exposition format 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats). Names follow
// prometheus.io/docs/practices/naming: base units, counters end in _total. Each process and figure has a series, with
// the labels `pid` and `command`; contexts and threads have none.
#ifndef HEAPTAP_USERSPACE_EXPORT_PROMETHEUS_H_
#define HEAPTAP_USERSPACE_EXPORT_PROMETHEUS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "userspace/profile/estimate.h"

namespace heaptap::exporter {

inline constexpr char kPrometheusContentType[] = "text/plain; version=0.0.4; charset=utf-8";

// Numbers by name: losses by reason, dumps by trigger, events by kind.
using CountsByName = std::map<std::string, uint64_t>;

// The figures of one process.
struct ProcessFigures {
  pid_t pid = 0;             // unique
  std::string command = {};  // chosen by the process; may have any bytes
  profile::Estimate live = {};
  profile::Estimate allocated = {};  // since recording began
  uint64_t peak_bytes = 0;           // highest `live` so far
  uint64_t period = 1;               // mean bytes between samples
  uint64_t contexts = 0;
  CountsByName losses = {};  // events, by reason
};

// The figures of the collector and of all processes.
struct CollectorFigures {
  std::string version = {};
  std::string revision = {};
  std::vector<ProcessFigures> processes = {};
  CountsByName events = {};  // handled by the collector, by kind
  CountsByName losses = {};  // events of no known process, by reason
  CountsByName dumps = {};   // written, by trigger
  uint64_t dump_errors = 0;  // dumps that could not be written
  absl::Duration dump_time = {};
  std::optional<absl::Time> last_dump = {};
  uint64_t kernel_memory_bytes = 0;  // of maps and programs
  double ring_fill_ratio = 0;        // 0 to 1
};

// The figures in that format, each family with HELP and TYPE. A family without a series is left out. Processes keep
// their order. Thread-safe.
std::string Prometheus(const CollectorFigures& figures);

}  // namespace heaptap::exporter

#endif  // HEAPTAP_USERSPACE_EXPORT_PROMETHEUS_H_
