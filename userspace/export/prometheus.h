// SPDX-License-Identifier: Apache-2.0
//
// What the collector knows in figures, for Prometheus.
//
// Format: text exposition format 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats). Names follow
// prometheus.io/docs/practices/naming: base units, counters end in _total. Only `pid` and `command` tell processes
// apart; there is a series for each process and figure, and none for contexts or threads.
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

// One process.
struct ProcessFigures {
  pid_t pid = 0;             // no two processes with the same
  std::string command = {};  // the process chose it; any byte may be in it
  profile::Estimate live = {};
  profile::Estimate allocated = {};  // since recording began
  uint64_t peak_bytes = 0;           // the most that `live` has been
  uint64_t period = 1;               // mean bytes between samples
  uint64_t contexts = 0;
  CountsByName losses = {};  // events, by reason
};

// The collector and all its processes.
struct CollectorFigures {
  std::string version = {};
  std::string revision = {};
  std::vector<ProcessFigures> processes = {};
  CountsByName events = {};  // that the collector has handled, by kind
  CountsByName losses = {};  // events that belong to no process, by reason
  CountsByName dumps = {};   // written, by what asked for them
  uint64_t dump_errors = 0;  // dumps that could not be written
  absl::Duration dump_time = {};
  std::optional<absl::Time> last_dump = {};
  uint64_t kernel_memory_bytes = 0;  // of maps and programs
  double ring_fill_ratio = 0;        // 0 to 1
};

// The figures in that format, each family with HELP and TYPE; a family without a series is left out. Processes come in
// their order. Thread-safe.
std::string Prometheus(const CollectorFigures& figures);

}  // namespace heaptap::exporter

#endif  // HEAPTAP_USERSPACE_EXPORT_PROMETHEUS_H_
