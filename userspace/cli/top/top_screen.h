// SPDX-License-Identifier: Apache-2.0
//
// The terminal of `heaptap top`, by ncurses. One object at a time; not thread-safe.
#ifndef HEAPTAP_USERSPACE_CLI_TOP_TOP_SCREEN_H_
#define HEAPTAP_USERSPACE_CLI_TOP_TOP_SCREEN_H_

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/cli/top/top_model.h"

namespace heaptap::cli {

class TopScreen {
 public:
  // FailedPrecondition: stdin or stdout is not a terminal, or the terminal cannot be drawn on (TERM).
  static absl::StatusOr<std::unique_ptr<TopScreen>> Open();
  // Gives the terminal back as it was; SIGINT and SIGTERM do so too.
  ~TopScreen();
  TopScreen(const TopScreen&) = delete;
  TopScreen& operator=(const TopScreen&) = delete;

  void Draw(TopModel& model) const;
  size_t width() const;
  // The next key, in the form of TopModel::Press; none after this time, or if the size has changed.
  std::optional<int> WaitForKey(absl::Duration limit) const;

 private:
  explicit TopScreen(void* terminal) : terminal_(terminal) {}
  void* const terminal_;  // SCREEN*, whose header defines macros such as `timeout` and `filter`
};

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_TOP_TOP_SCREEN_H_
