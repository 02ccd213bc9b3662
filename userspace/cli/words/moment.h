// SPDX-License-Identifier: Apache-2.0
//
// Moments of the past as people write them. Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_CLI_WORDS_MOMENT_H_
#define HEAPTAP_USERSPACE_CLI_WORDS_MOMENT_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace heaptap::cli {

// now, yesterday (a day ago), an age (90s, 10m, 2h, 3d, 1w, 1h30m), HH:MM[:SS] (the last time that the clock showed
// it), YYYY-MM-DD, YYYY-MM-DD HH:MM[:SS], or with T instead of the space. Clock times are in `zone`. InvalidArgument:
// another text, or a moment in the future.
absl::StatusOr<absl::Time> ParseMoment(absl::string_view text, absl::Time now, absl::TimeZone zone);

// NAME@MOMENT, or NAME@last: the last moment that is known of NAME, even after its end.
struct NamedMoment {
  std::string name;  // or a PID
  absl::Time time;   // for NAME@last: now
  bool is_last = false;
};
// None: there is no '@'.
std::optional<absl::StatusOr<NamedMoment>> ParseNamedMoment(const std::string& text);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_WORDS_MOMENT_H_
