// SPDX-License-Identifier: Apache-2.0
//
// The figures of figures.h and coverage.h by name: one row for each figure, in one table for each struct. JSON (written
// by the daemon, read by its clients), Prometheus, and the tables of `heaptap list` and `heaptap stats` follow these
// rows, in this order.
#ifndef HEAPTAP_USERSPACE_PROFILE_FIGURE_TABLES_H_
#define HEAPTAP_USERSPACE_PROFILE_FIGURE_TABLES_H_

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "heaptap/contract.h"
#include "userspace/profile/coverage.h"
#include "userspace/profile/figures.h"

namespace heaptap::profile {

// A family of metrics; each process has a series.
struct Metric {
  const char* name = nullptr;  // null: Prometheus does not get the figure
  const char* type = "";       // "gauge" or "counter"
  const char* help = "";
  bool is_power = false;  // the metric is 2 to the power of the figure
};

// How people and Prometheus see a figure.
struct Shown {
  const char* title = nullptr;  // null: no column or line of its own
  bool in_bytes = false;
  Metric metric = {};
  const char* note = "";  // what the figure means; shown where it is a line
};

template <typename Struct, typename Value>
struct Figure {
  constexpr Figure(const char* the_name, Value Struct::*the_value, const Shown& how = {})
      : name(the_name), value(the_value), shown(how) {}

  const char* name;  // in JSON
  Value Struct::*value;
  Shown shown;
};

constexpr Metric Gauge(const char* name, const char* help) { return {.name = name, .type = "gauge", .help = help}; }
constexpr Metric Counter(const char* name, const char* help) { return {.name = name, .type = "counter", .help = help}; }

inline constexpr std::tuple kProcessFigures = {
    Figure("pid", &ProcessSummary::pid, {.title = "PID"}),
    Figure("process_id", &ProcessSummary::process_id),
    Figure("owner", &ProcessSummary::owner),
    Figure("command", &ProcessSummary::command, {.title = "COMMAND"}),
    Figure("executable", &ProcessSummary::executable),
    Figure("service", &ProcessSummary::service),
    Figure("control_group", &ProcessSummary::control_group),
    Figure("recorded_since", &ProcessSummary::recorded_since, {.title = "UPTIME"}),
    Figure("live_bytes", &ProcessSummary::live_bytes,
           {.title = "LIVE",
            .in_bytes = true,
            .metric = Gauge("heaptap_live_bytes", "Estimate of the bytes allocated and not freed.")}),
    Figure("live_objects", &ProcessSummary::live_objects,
           {.metric = Gauge("heaptap_live_objects", "Estimate of the objects allocated and not freed.")}),
    Figure("peak_bytes", &ProcessSummary::peak_bytes,
           {.title = "PEAK",
            .in_bytes = true,
            .metric = Gauge("heaptap_peak_bytes", "Highest heaptap_live_bytes so far.")}),
    Figure("allocated_bytes", &ProcessSummary::allocated_bytes,
           {.metric = Counter("heaptap_allocated_bytes_total", "Estimate of the bytes allocated, freed or not.")}),
    Figure("allocated_objects", &ProcessSummary::allocated_objects,
           {.metric = Counter("heaptap_allocated_objects_total", "Estimate of the objects allocated, freed or not.")}),
    Figure("allocation_rate", &ProcessSummary::allocation_rate, {.title = "RATE/s", .in_bytes = true}),
    Figure("contexts", &ProcessSummary::contexts,
           {.title = "CONTEXTS", .metric = Gauge("heaptap_contexts", "Call paths that have allocated.")}),
    Figure("samples", &ProcessSummary::samples,
           {.title = "SAMPLES", .metric = Counter("heaptap_samples_total", "Allocations sampled.")}),
    Figure("lg_sample", &ProcessSummary::lg_sample,
           {.title = "LG",
            .metric = {.name = "heaptap_sample_period_bytes",
                       .type = "gauge",
                       .help = "Mean bytes between samples.",
                       .is_power = true}}),
    Figure("active", &ProcessSummary::active, {.title = "ACTIVE"}),
    Figure("losses", &ProcessSummary::losses, {.title = "LOSSES"}),
    Figure("allocator", &ProcessSummary::allocator, {.title = "ALLOCATOR"}),
    Figure("resident_bytes", &ProcessSummary::resident_bytes),
    Figure("growth_per_minute", &ProcessSummary::growth_per_minute),
    Figure("growth_error", &ProcessSummary::growth_error),
    Figure("growth_seconds", &ProcessSummary::growth_seconds),
};

// The figures of an ended process besides those of its summary.
inline constexpr std::tuple kEndedFigures = {
    Figure("ended", &EndedProcess::ended),
    Figure("status", &EndedProcess::status),
    Figure("by_oom_kill", &EndedProcess::by_oom_kill),
    Figure("dump", &EndedProcess::dump),
};

// The figures of an allocator besides its statistics.
inline constexpr std::tuple kAllocatorFigures = {
    Figure("name", &AllocatorFigures::name),
    Figure("options", &AllocatorFigures::options),
    Figure("active", &AllocatorFigures::active),
    Figure("lg_sample", &AllocatorFigures::lg_sample),
};

inline constexpr std::tuple kStatisticsFigures = {
    Figure("mapped", &heaptap_statistics::mapped,
           {.title = "mapped", .in_bytes = true, .note = "address space from the kernel"}),
    Figure(
        "active", &heaptap_statistics::active,
        {.title = "in use",
         .in_bytes = true,
         .note =
             "pages with a block in use; what is above live is free blocks among them, or older than the recording"}),
    Figure("dirty", &heaptap_statistics::dirty,
           {.title = "dirty", .in_bytes = true, .note = "free pages that the allocator keeps for later"}),
    Figure("large", &heaptap_statistics::large, {.title = "large blocks", .in_bytes = true}),
    Figure("sampled_objects", &heaptap_statistics::sampled_objects, {.title = "sampled objects"}),
    Figure("foreign_frees", &heaptap_statistics::foreign_frees, {.title = "foreign frees"}),
    Figure("metadata", &heaptap_statistics::metadata, {.title = "metadata", .in_bytes = true}),
};

inline constexpr std::tuple kResidentFigures = {
    Figure("anonymous", &ResidentBytes::anonymous),
    Figure("files", &ResidentBytes::files),
    Figure("shared", &ResidentBytes::shared),
    Figure("stacks", &ResidentBytes::stacks),
};

template <const auto& kTable, size_t kRow>
inline constexpr const auto& kRowOf = std::get<kRow>(kTable);

// Calls `visit`(row) for each row of a table. The table is a parameter of the template, because its type would make the
// functions' names in the debug information longer than the symbolizer keeps.
template <const auto& kTable, typename Visit>
constexpr void ForEachFigure(Visit&& visit) {
  constexpr size_t kRows = std::tuple_size_v<std::decay_t<decltype(kTable)>>;
  [&]<size_t... kRow>(std::index_sequence<kRow...>) { (visit(kRowOf<kTable, kRow>), ...); }
  (std::make_index_sequence<kRows>());
}

}  // namespace heaptap::profile

#endif  // HEAPTAP_USERSPACE_PROFILE_FIGURE_TABLES_H_
