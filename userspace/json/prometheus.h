// SPDX-License-Identifier: Apache-2.0
//
// The figures of the collector, for Prometheus.
//
// Format: text exposition format 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats). Names follow
// prometheus.io/docs/practices/naming: base units, counters end in _total. Each process and figure has a series, with
// the labels `pid` and `command`; contexts and threads have none.
#ifndef HEAPTAP_USERSPACE_JSON_PROMETHEUS_H_
#define HEAPTAP_USERSPACE_JSON_PROMETHEUS_H_

#include <string>

#include "userspace/profile/figures.h"

namespace heaptap::json {

inline constexpr char kPrometheusContentType[] = "text/plain; version=0.0.4; charset=utf-8";

// The figures in that format, each family with HELP and TYPE. A family without a series is left out. Processes keep
// their order. Thread-safe.
std::string Prometheus(const profile::CollectorFigures& figures);

}  // namespace heaptap::json

#endif  // HEAPTAP_USERSPACE_JSON_PROMETHEUS_H_
