// SPDX-License-Identifier: Apache-2.0
//
// The short form of `heaptap report`: who holds the memory, in a dozen lines.
#ifndef HEAPTAP_USERSPACE_REPORT_SUMMARY_TEXT_H_
#define HEAPTAP_USERSPACE_REPORT_SUMMARY_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "userspace/profile/coverage.h"
#include "userspace/report/rows.h"
#include "userspace/report/text.h"

namespace heaptap::report {

// What is known besides the paths.
struct Subject {
  std::string name = {};                             // of the process or the dump, printable
  uint64_t period = 1;                               // mean bytes between samples; 1: every allocation
  bool several_periods = false;                      // profile::Profile::several_periods
  bool is_difference = false;                        // of two profiles
  bool has_allocated = true;                         // profile::Profile::has_allocated
  profile::Estimate before = {};                     // a difference: live in the earlier profile
  profile::Estimate after = {};                      // a difference: live in the later profile
  std::optional<double> resident_bytes = {};         // of the process
  bool begins_late = false;                          // the process held memory before, about which nothing is known
  std::optional<absl::Duration> recorded_for = {};   // how long the recording had run, if it begins late
  std::optional<double> allocated_bytes = {};        // between two moments, if the paths do not say it
  std::vector<profile::CoveragePart> coverage = {};  // how resident_bytes divide; empty: unknown
  std::vector<std::string> warnings = {};            // one sentence each: what is missing in the profile, printable
  std::vector<std::string> next_commands = {};       // what to run next
};

// The changes of the same process in the last `time`.
struct Past {
  const NamedProfile& difference;
  absl::Span<const Path> paths;
  absl::Duration time;
};

// How the samples were taken: "a sample every 512.0K bytes", "several intervals, at last a sample every 512.0K bytes".
// If there is a warning that something is missing, the text does not say that every allocation is recorded.
// Thread-safe.
std::string Sampling(const Subject& subject);

// Totals with their standard errors, the paths that hold most, those that grew most, losses, and what to run next.
// `past`: null: unknown. Thread-safe.
std::string SummaryText(const NamedProfile& profile, absl::Span<const Path> paths, const Subject& subject,
                        const Show& show, const TextOptions& options, const Past* past = nullptr);

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_REPORT_SUMMARY_TEXT_H_
