// SPDX-License-Identifier: Apache-2.0
//
// The views and formats of `heaptap report`, by their options. Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_CLI_SHOW_REPORT_VIEWS_H_
#define HEAPTAP_USERSPACE_CLI_SHOW_REPORT_VIEWS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "userspace/profile/difference.h"
#include "userspace/profile/profile.h"
#include "userspace/profile/source_frames.h"
#include "userspace/report/named_profile.h"
#include "userspace/report/rows.h"
#include "userspace/report/selection.h"
#include "userspace/report/summary_text.h"

namespace heaptap::cli {

// What a view is made of.
struct ReportInput {
  const profile::Profile& profile;
  const profile::FindSourceFrames& find;
  const report::NamedProfile& named;
  const report::Subject& subject;
  report::Show show = {};
  report::Filters filters = {};
  std::string exclude = {};  // as jeprof understands it
  std::string callers = {};  // of this function
  std::string peek = {};     // at functions that match this
  bool show_bytes = false;
  bool by_total = false;
  bool source_paths = true;            // --html: with the folders of files
  std::optional<uint64_t> limit = {};  // call paths or rows
  double smallest = 0;                 // percent
  size_t width = 0;                    // of the terminal; 0: none
  // For the short form: what changed in a running process in the last `past_time`.
  const report::NamedProfile* past = nullptr;
  absl::Duration past_time = {};
};

using MakeView = absl::StatusOr<std::string> (*)(const ReportInput& input);

struct View {
  const char* option;
  const char* help;
  MakeView make;
  bool is_binary = false;
  profile::Unchanged unchanged = profile::Unchanged::kLeaveOut;  // in a difference
  bool has_shares = false;                                       // of threads, sizes and ages
  report::CutPaths cut_paths = report::CutPaths::kBare;
  bool has_addresses = false;   // of the code of the process
  bool shows_warnings = false;  // for people to see: the warnings of the profile are in the text
};

// The views that are chosen by a flag.
absl::Span<const View> ReportViews();

// The views without a flag (by thread, size or age: --top), with --callers, and with --peek.
absl::StatusOr<std::string> ShortView(const ReportInput& input);
absl::StatusOr<std::string> CallersView(const ReportInput& input);
absl::StatusOr<std::string> PeekView(const ReportInput& input);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_SHOW_REPORT_VIEWS_H_
